#include "engine/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "engine/engine_rig.h"

namespace millrace::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = WatchReport::Kind;

constexpr WatchdogOptions kOptions{.slow_step_seconds = 10, .stuck_after_seconds = 100};

// A look at a step that has run for `age`, the first look at it being the engine's only progress before.
EngineStats At(uint64_t step, double age) {
  EngineStats stats;
  stats.steps_total = step;
  stats.current_step_age_seconds = age;
  stats.seconds_since_progress = age;
  stats.current_step = {.sequences = 5, .decode_rows = 4, .prefill_tokens = 508, .depth = 131072};
  stats.running = 5;
  stats.waiting = 2;
  return stats;
}

std::vector<Kind> Kinds(const std::vector<WatchReport>& reports) {
  std::vector<Kind> kinds;
  for (const WatchReport& report : reports) kinds.push_back(report.kind);
  return kinds;
}

TEST(StepWatch, ReportsASlowStepOnceForEachDoubling) {
  StepWatch watch(kOptions);
  EXPECT_THAT(watch.Look(At(7, 9.9)), IsEmpty());
  EXPECT_THAT(Kinds(watch.Look(At(7, 10.5))), ElementsAre(Kind::kSlowStep));
  EXPECT_THAT(watch.Look(At(7, 19)), IsEmpty());
  EXPECT_THAT(Kinds(watch.Look(At(7, 21))), ElementsAre(Kind::kSlowStep));
  EXPECT_THAT(Kinds(watch.Look(At(7, 90))), ElementsAre(Kind::kSlowStep))
      << "once for what was slept through";
  const auto ended = watch.Look(At(8, 0.1));
  ASSERT_THAT(Kinds(ended), ElementsAre(Kind::kSlowEnded));
  EXPECT_EQ(ended[0].step, 7u);
  EXPECT_EQ(ended[0].seconds, 90);
  EXPECT_THAT(watch.Look(At(8, 9)), IsEmpty()) << "the next begins anew";
  EXPECT_THAT(Kinds(watch.Look(At(8, 11))), ElementsAre(Kind::kSlowStep));
  EXPECT_THAT(Kinds(watch.Look(At(9, 12))), ElementsAre(Kind::kSlowEnded, Kind::kSlowStep));
  EXPECT_THAT(Kinds(watch.Look(EngineStats())), ElementsAre(Kind::kSlowEnded));
  EXPECT_THAT(watch.Look(EngineStats()), IsEmpty());
}

TEST(StepWatch, ReportsAStuckEngineAndItsRecoveryOnce) {
  StepWatch watch({.slow_step_seconds = 1e9, .stuck_after_seconds = 100});
  EXPECT_THAT(watch.Look(At(7, 99)), IsEmpty());
  EXPECT_THAT(Kinds(watch.Look(At(7, 101))), ElementsAre(Kind::kStuck));
  EXPECT_THAT(watch.Look(At(7, 250)), IsEmpty());
  const auto reports = watch.Look(At(8, 1));
  ASSERT_THAT(Kinds(reports), ElementsAre(Kind::kRecovered));
  EXPECT_EQ(reports[0].seconds, 250);
  EXPECT_THAT(watch.Look(At(8, 2)), IsEmpty());
  EXPECT_THAT(Kinds(watch.Look(At(8, 150))), ElementsAre(Kind::kStuck)) << "again";
}

// Requests wait and no step runs: the engine's thread is lost outside of one.
TEST(StepWatch, ALostThreadIsStuckToo) {
  StepWatch watch(kOptions);
  EngineStats stats;
  stats.waiting = 3;
  stats.seconds_since_progress = 101;
  EXPECT_THAT(Kinds(watch.Look(stats)), ElementsAre(Kind::kStuck));
}

TEST(StepWatch, LinesSayWhatTheStepWas) {
  StepWatch watch(kOptions);
  const auto slow = watch.Look(At(7, 10.5));
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(
      Describe(slow[0]),
      "step 7 (5 sequences, 508 prompt tokens, 4 decoding, depth 131072) has run for 10.5 s and goes on");
  const auto stuck = watch.Look(At(7, 101));
  ASSERT_EQ(stuck.size(), 2u);
  EXPECT_THAT(Describe(stuck[1]),
              HasSubstr("no progress for 101.0 s with 5 running and 2 waiting, in step 7"));
}

class WatchedEngineTest : public ::testing::Test {
 protected:
  template <typename Condition>
  static bool Comes(Condition condition) {
    for (int i = 0; i < 4000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
};

TEST_F(WatchedEngineTest, AStepThatDoesNotEndIsSlowThenStuckThenRecovers) {
  Rig rig({.max_batch_tokens = 8}, {.max_num_seqs = 3,
                                    .prefill_chunk = 8,
                                    .watchdog = {.slow_step_seconds = 0.02, .stuck_after_seconds = 0.1}});
  rig.model->PlayByDefault(std::vector<TokenId>(20, 30));
  EXPECT_FALSE(rig.engine->stats().stuck);
  const auto decoding = rig.StartHeld(Request({5, 6, 7}));
  rig.RunSteps(2);
  const auto reading = rig.Start(Request(std::vector<TokenId>(12, 8)));
  rig.RunSteps(1);
  ASSERT_TRUE(Comes([&] { return rig.engine->stats().stuck; }));
  ASSERT_TRUE(Comes([&] { return rig.engine->stats().stuck_total == 1; }));
  const EngineStats stats = rig.engine->stats();
  EXPECT_EQ(stats.slow_steps_total, 1u);
  EXPECT_EQ(stats.current_step.sequences, 2);
  EXPECT_EQ(stats.current_step.decode_rows, 1);
  EXPECT_GE(stats.current_step.prefill_tokens, 1);
  EXPECT_GE(stats.current_step.depth, 5) << "three of the prompt, two generated";
  EXPECT_GT(stats.seconds_since_progress, 0.1);

  rig.model->ReleaseSteps();
  EXPECT_EQ(Reason(decoding.sink), FinishReason::kStop);
  EXPECT_EQ(Reason(reading.sink), FinishReason::kStop);
  EXPECT_TRUE(Comes([&] { return !rig.engine->stats().stuck; }));
  EXPECT_TRUE(Comes([&] { return rig.engine->stats().seconds_since_progress == 0; })) << "idle";
  EXPECT_EQ(rig.engine->stats().current_step.sequences, 0);
}

// Long work in short steps is progress, however long it takes.
TEST_F(WatchedEngineTest, ABusyEngineIsNotStuck) {
  Rig rig({.max_batch_tokens = 8, .step_delay = std::chrono::milliseconds(10)},
          {.prefill_chunk = 8, .watchdog = {.slow_step_seconds = 5, .stuck_after_seconds = 0.3}});
  const auto reading = rig.Start(Request(std::vector<TokenId>(800, 8)));
  EXPECT_EQ(Reason(reading.sink), FinishReason::kStop);
  EXPECT_EQ(rig.engine->stats().stuck_total, 0u);
  EXPECT_EQ(rig.engine->stats().slow_steps_total, 0u);
  EXPECT_TRUE(Comes([&] { return rig.engine->stats().steps_total >= 100; }))
      << "the last is counted behind the end";
}

}  // namespace
}  // namespace millrace::engine
