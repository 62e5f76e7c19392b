#include "api/answer_memory.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/units.h"

namespace millrace::api {
namespace {

constexpr int64_t kLength = 1000;  // of a sequence
constexpr uint64_t kShared = 256 * kKiB;

class AnswerMemoryTest : public ::testing::Test {
 protected:
  MemoryAccount account_{"answers in progress", AnswerBudget::PlanBytes(kShared, kLength, 2, 3)};
  AnswerBudget budget_{kShared, kLength, &account_};
};

TEST_F(AnswerMemoryTest, WhatThePlanHasForARunningSequenceNeedsNoReservation) {
  AnswerMemory answer(budget_);
  EXPECT_TRUE(answer.Change(1000, 3200));
  EXPECT_EQ(budget_.reserved_bytes(), 0u);
  EXPECT_EQ(account_.live_bytes(), 1000u);
  // The slot is another's: what was within the plan is not any more.
  EXPECT_TRUE(answer.Change(0, -3200));
  EXPECT_EQ(budget_.reserved_bytes(), 64 * kKiB) << "reserved in steps";
  EXPECT_EQ(account_.live_bytes(), 64 * kKiB);
}

TEST_F(AnswerMemoryTest, WhatGoesBeyondIsReservedOrRefused) {
  AnswerMemory answer(budget_);
  ASSERT_TRUE(answer.Reserve(kShared - 1000));
  EXPECT_TRUE(answer.Change(kShared - 1000, 0));
  EXPECT_TRUE(answer.Change(600, 0)) << "a step is not left, but as much as is missing";
  EXPECT_FALSE(answer.Change(600, 0));
  EXPECT_TRUE(answer.Change(400, 0)) << "what was refused is not counted";
  AnswerMemory other(budget_);
  EXPECT_FALSE(other.Reserve(1));
  EXPECT_TRUE(other.Change(5, 5));
  EXPECT_EQ(account_.live_bytes(), kShared + 5);
}

TEST_F(AnswerMemoryTest, AnAnswerTakesItsReservationAlongAndGivesBackTheRest) {
  ByteReservation body;
  {
    AnswerMemory answer(budget_);
    ASSERT_TRUE(answer.Reserve(10'000));
    ASSERT_TRUE(answer.Change(12'000, 4000));
    body = answer.Take(3000);
    EXPECT_EQ(account_.live_bytes(), 3000u);
  }
  EXPECT_EQ(budget_.reserved_bytes(), 3000u);
  AnswerMemory plain(budget_);
  ASSERT_TRUE(plain.Change(50, 50));
  EXPECT_EQ(plain.Take(100).bytes(), 0u) << "nothing was reserved that would cover it";
  body = {};
  EXPECT_EQ(account_.live_bytes(), 0u);
}

TEST_F(AnswerMemoryTest, ThePlanHoldsTheFullestServer) {
  {
    AnswerMemory running[2] = {AnswerMemory(budget_), AnswerMemory(budget_)};
    AnswerMemory waiting[3] = {AnswerMemory(budget_), AnswerMemory(budget_), AnswerMemory(budget_)};
    const auto place = static_cast<int64_t>(kAnswerBytesPerSequence + kAnswerBytesPerRequest);
    const auto full = kLength * static_cast<int64_t>(kAnswerBytesPerToken);
    for (AnswerMemory& answer : running) ASSERT_TRUE(answer.Change(place + full, place + full));
    for (AnswerMemory& answer : waiting) ASSERT_TRUE(answer.Change(place, place));
    const auto writing = static_cast<int64_t>(budget_.writing_bytes());
    ASSERT_TRUE(running[0].Change(writing, writing));
    ASSERT_TRUE(running[1].Reserve(kShared));
    EXPECT_EQ(account_.live_bytes(), account_.planned_bytes());
  }
  EXPECT_EQ(account_.live_bytes(), 0u);
}

}  // namespace
}  // namespace millrace::api
