#include "engine/queue_estimate.h"

#include <gtest/gtest.h>

#include "engine/busy_rate.h"
#include "engine/engine_rig.h"

namespace millrace::engine {
namespace {

TEST(BusyRate, IsThatOfTheLastHalfMinuteOfWork) {
  BusyRate rate;
  EXPECT_EQ(rate.per_second(), 0);
  for (int i = 0; i < 1000; ++i) rate.Add(100, 0.5);
  EXPECT_NEAR(rate.per_second(), 200, 1e-6);
  for (int i = 0; i < 10; ++i) rate.Add(50, 1);
  EXPECT_LT(rate.per_second(), 170);
  EXPECT_GT(rate.per_second(), 100) << "ten seconds are not all";
  for (int i = 0; i < 300; ++i) rate.Add(50, 1);
  EXPECT_NEAR(rate.per_second(), 50, 1);
}

TEST(QueueEstimate, IsTheQueuesTokensOverTheRate) {
  EngineStats stats;
  EXPECT_FALSE(QueueSeconds(stats));
  EXPECT_EQ(RetryAfterSeconds(stats), 2);
  stats.tokens_per_second = 100;
  stats.waiting = 4;
  stats.waiting_tokens = 600;
  stats.mean_answer_tokens = 150;
  EXPECT_EQ(QueueSeconds(stats), 12);
  EXPECT_EQ(RetryAfterSeconds(stats), 12);
  stats.waiting_tokens = 601;
  EXPECT_EQ(RetryAfterSeconds(stats), 13);
  stats.tokens_per_second = 1e6;
  EXPECT_EQ(RetryAfterSeconds(stats), 1);
  stats.tokens_per_second = 1;
  EXPECT_EQ(RetryAfterSeconds(stats), kMaxRetryAfterSeconds);
}

TEST(QueueEstimate, FollowsTheEngine) {
  Rig rig({.step_delay = std::chrono::milliseconds(1)}, {.max_num_seqs = 1});
  rig.model->PlayByDefault(std::vector<TokenId>(9, 20));
  EXPECT_EQ(Reason(rig.Start(Request({5, 6, 7})).sink), FinishReason::kStop);
  rig.engine->Drain(std::chrono::steady_clock::now() + std::chrono::seconds(20));
  const EngineStats stats = rig.engine->stats();
  EXPECT_EQ(stats.mean_answer_tokens, 10);
  EXPECT_GT(stats.tokens_per_second, 1);
  EXPECT_LT(stats.tokens_per_second, 3000) << "a step takes a millisecond at least and gives up to 3 tokens";
}

TEST(QueueEstimate, CountsThePromptsThatWait) {
  Rig rig({}, {.max_num_seqs = 1});
  rig.model->PlayByDefault(std::vector<TokenId>(50, 20));
  const auto running = rig.StartHeld(Request({5, 6, 7}));
  EXPECT_EQ(rig.engine->stats().waiting_tokens, 0) << "it has its slot";
  const auto second = rig.Start(Request({5, 6}));
  const auto third = rig.Start(Request({5, 6, 7, 8}));
  EXPECT_EQ(rig.engine->stats().waiting_tokens, 6);
  rig.engine->Cancel(third.id);
  rig.RunSteps(1);
  EXPECT_EQ(rig.engine->stats().waiting_tokens, 2);
  rig.model->ReleaseSteps();
  EXPECT_EQ(Reason(second.sink), FinishReason::kStop);
  EXPECT_EQ(rig.engine->stats().waiting_tokens, 0);
}

}  // namespace
}  // namespace millrace::engine
