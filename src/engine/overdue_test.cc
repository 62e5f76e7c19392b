#include "engine/overdue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/engine_rig.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

TEST(Overdue, ByDeadlineWhereverTheRequestIs) {
  const Clock::time_point begin{};
  const RequestLimits limits{.submitted = begin, .deadline = begin + 10s};
  for (const bool waiting : {false, true}) {
    EXPECT_FALSE(Overdue(limits, waiting, begin + 9999ms));
    const auto error = Overdue(limits, waiting, begin + 10s);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kDeadlineExceeded);
    EXPECT_THAT(error->message(),
                HasSubstr(waiting ? "still waits for a slot after 10 s" : "is not done after 10 s"));
  }
}

// A request may have been decoded for long before the engine saw it.
TEST(Overdue, SaysWhatItsClientHasWaited) {
  const Clock::time_point begin{};
  const auto error =
      Overdue({.submitted = begin + 4s, .deadline = begin + 10s, .arrival = begin}, false, begin + 10s);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message(), HasSubstr("is not done after 10 s"));
}

TEST(Overdue, ByTheQueuesLimitOnlyWhileItWaits) {
  const Clock::time_point begin{};
  const RequestLimits limits{.submitted = begin, .max_queue_seconds = 2.5};
  EXPECT_FALSE(Overdue(limits, true, begin + 2499ms));
  EXPECT_FALSE(Overdue(limits, false, begin + 100s));
  const auto error = Overdue(limits, true, begin + 2500ms);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kResourceExhausted);
  EXPECT_FALSE(Overdue({.submitted = begin}, true, begin + 1000h)) << "no limits";
}

GenerationRequest Until(Clock::time_point deadline, std::vector<TokenId> prompt) {
  GenerationRequest request = Request(std::move(prompt), 3000);
  request.deadline = deadline;
  return request;
}

// One decodes, one is being read, one waits: each leaves within one step once its time is up.
TEST(EngineDeadline, EndsARequestWithinOneStepWhereverItIs) {
  Rig rig({.max_batch_tokens = 4}, {.max_num_seqs = 2, .prefill_chunk = 4});
  rig.model->PlayByDefault(std::vector<TokenId>(3000, 20));
  const Clock::time_point deadline = Clock::now() + 300ms;
  const auto decoding = rig.StartHeld(Until(deadline, {5}));
  rig.RunSteps(2);
  const auto reading = rig.Start(Until(deadline, std::vector<TokenId>(2000, 6)));
  const auto waiting = rig.Start(Until(deadline, {7}));
  rig.RunSteps(2);
  EXPECT_EQ(rig.engine->stats().running, 2);
  EXPECT_EQ(rig.engine->stats().waiting, 1);
  std::this_thread::sleep_until(deadline);
  rig.model->AllowSteps(1);  // the one that was held when the time was up
  for (const auto& started : {decoding, reading, waiting}) {
    EXPECT_EQ(Reason(started.sink), FinishReason::kTimeout);
    EXPECT_EQ(started.sink->WaitForFinish()->error->code(), ErrorCode::kDeadlineExceeded);
  }
  EXPECT_GE(decoding.sink->tokens().size(), 2u) << "what was generated in time was delivered";
  EXPECT_EQ(rig.engine->stats().finished_timeout, 3u);
  EXPECT_EQ(rig.engine->stats().running, 0);
  EXPECT_EQ(rig.model->live_sequences(), 0);
  rig.model->ReleaseSteps();
  EXPECT_EQ(Reason(rig.Start(Request({5}, 1)).sink), FinishReason::kLength);
}

TEST(EngineDeadline, ARequestThatWaitsTooLongForASlotIsSentBack) {
  Rig rig({}, {.max_num_seqs = 1, .max_queue_seconds = 0.1});
  rig.model->PlayByDefault(std::vector<TokenId>(3000, 20));
  const auto running = rig.StartHeld(Request({5}, 3000));
  const auto waiting = rig.Start(Request({6}));
  rig.RunSteps(1);
  EXPECT_EQ(rig.engine->stats().waiting, 1);
  std::this_thread::sleep_for(110ms);
  rig.RunSteps(1);
  EXPECT_EQ(Reason(waiting.sink), FinishReason::kTimeout);
  EXPECT_EQ(waiting.sink->WaitForFinish()->error->code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(running.sink->finishes(), 0) << "who has a slot keeps it";
  EXPECT_EQ(rig.engine->stats().waiting, 0);
}

}  // namespace
}  // namespace millrace::engine
