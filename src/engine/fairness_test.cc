// What the schedule promises to streams and prompts, on simulated machines: four streams decode while eight
// long prompts arrive.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/step_simulation_testing.h"

namespace millrace::engine {
namespace {

constexpr int kStreams = 4;
constexpr int kPrompts = 8;
constexpr int64_t kPromptTokens = 32768;

struct Machine {
  const char* name;
  MachineModel model;
};

std::vector<Machine> Machines() {
  return {
      // Two processors: a chunk of 512 takes four seconds.
      {"processors",
       {.base = 0.035,
        .decode_row = 0.011,
        .prefill_token = 0.0075,
        .small_chunk_extra = 1,
        .depth_doubles_at = 65536}},
      // Weights read from the drive: decoding alone takes longer than any gap that one would ask for.
      {"drive", {.base = 0.900, .decode_row = 0.050, .prefill_token = 0.020, .small_chunk_extra = 1}},
      // A card: a chunk of 4096 takes 0.4 s.
      {"card", {.base = 0.012, .decode_row = 0.0005, .prefill_token = 0.0001, .small_chunk_extra = 0.5}},
  };
}

PlannerOptions Options(SchedulePolicy policy, PaceOptions pace = {}) {
  return {.policy = policy, .batch_tokens = 512, .max_chunk = 512, .max_rows = 64, .pace = pace};
}

struct Outcome {
  double solo_rate = 0;     // of one stream alone
  double slowest_rate = 0;  // of the streams while prompts are read
  double longest_gap = 0;
  double alone_seconds = 0;  // of a step in which all streams decode
  double reading_seconds = 0;
  int64_t stream_tokens = 0;  // of all streams, meanwhile
};

// One stream alone, then four, then the prompts beside them.
Outcome Simulate(const MachineModel& machine, const PlannerOptions& options) {
  StepSimulation simulation(machine, options);
  Outcome outcome;
  simulation.Add(0, 100);
  simulation.Run([&] { return simulation.steps() == 50; });
  simulation.MeasureFromHere();
  simulation.Run([&] { return simulation.steps() == 100; });
  outcome.solo_rate = simulation.at(0).Rate();
  for (int i = 1; i < kStreams; ++i) simulation.Add(simulation.now(), 100);
  EXPECT_TRUE(simulation.RunUntilPromptsAreRead());
  const int64_t warm = simulation.steps() + 50;
  simulation.Run([&] { return simulation.steps() == warm; });
  outcome.alone_seconds = simulation.costs().back().seconds;

  simulation.MeasureFromHere();
  const double begin = simulation.now();
  for (int i = 0; i < kPrompts; ++i) simulation.Add(begin, kPromptTokens, /*decodes_after=*/false);
  EXPECT_TRUE(simulation.RunUntilPromptsAreRead());
  outcome.reading_seconds = simulation.now() - begin;
  outcome.slowest_rate = simulation.at(0).Rate();
  for (int i = 0; i < kStreams; ++i) {
    outcome.stream_tokens += simulation.at(static_cast<size_t>(i)).tokens - 1;
    outcome.slowest_rate = std::min(outcome.slowest_rate, simulation.at(static_cast<size_t>(i)).Rate());
    outcome.longest_gap = std::max(outcome.longest_gap, simulation.at(static_cast<size_t>(i)).longest_gap);
  }
  return outcome;
}

TEST(Fairness, StreamsKeepTheirShareAndTheirGap) {
  const PaceOptions pace;
  for (const Machine& machine : Machines()) {
    for (const SchedulePolicy policy : kSchedulePolicies) {
      const Outcome outcome = Simulate(machine.model, Options(policy));
      // Four streams together may have less than the share even without prompts: then two thirds of that.
      const double promised =
          std::min(pace.min_decode_share * outcome.solo_rate, 2 / (3 * outcome.alone_seconds));
      EXPECT_GE(outcome.slowest_rate, 0.97 * promised) << machine.name << " " << SchedulePolicyName(policy);
      const double gap = std::max(pace.max_gap_seconds, 2 * outcome.alone_seconds);
      EXPECT_LE(outcome.longest_gap, gap) << machine.name << " " << SchedulePolicyName(policy);
    }
  }
}

// Without the pace every machine breaks the promise: the test above can fail.
TEST(Fairness, UnpacedStreamsStarve) {
  for (const Machine& machine : Machines()) {
    if (machine.name == std::string("drive")) continue;
    const PaceOptions unpaced{.max_gap_seconds = 0, .min_decode_share = 0};
    const Outcome outcome = Simulate(machine.model, Options(SchedulePolicy::kFair, unpaced));
    EXPECT_LT(outcome.slowest_rate, 0.29 * outcome.solo_rate) << machine.name;
  }
}

// Equal shares cost nothing over one prompt after the other: the chunk is as large and the weights are read
// as often.
TEST(Fairness, SharingCostsPromptsNoThroughput) {
  for (const Machine& machine : Machines()) {
    const double fair = Simulate(machine.model, Options(SchedulePolicy::kFair)).reading_seconds;
    const double unfair = Simulate(machine.model, Options(SchedulePolicy::kFcfs)).reading_seconds;
    EXPECT_LE(fair, 1.05 * unfair) << machine.name;
  }
}

// What streams keep is not lost: with the prompts first and the streams' tokens after them, the same work
// would take as long but for a twentieth.
TEST(Fairness, PacingCostsTheMachineATwentiethOfItsTime) {
  const PaceOptions unpaced{.max_gap_seconds = 0, .min_decode_share = 0};
  for (const Machine& machine : Machines()) {
    if (machine.name == std::string("drive"))
      continue;  // chunks are small there so that anybody gets anything
    const Outcome paced = Simulate(machine.model, Options(SchedulePolicy::kFair));
    const Outcome unfair = Simulate(machine.model, Options(SchedulePolicy::kFcfs, unpaced));
    const auto missed = static_cast<double>(paced.stream_tokens - unfair.stream_tokens);
    const double after = missed / kStreams * paced.alone_seconds;
    EXPECT_GE((unfair.reading_seconds + after) / paced.reading_seconds, 0.945) << machine.name;
  }
}

// The first token of a 200-token prompt behind one of `huge` tokens, with four streams decoding.
double ShortBehindHuge(const MachineModel& machine, const PlannerOptions& options, int64_t huge) {
  StepSimulation simulation(machine, options);
  for (int i = 0; i < kStreams; ++i) simulation.Add(0, 100);
  EXPECT_TRUE(simulation.RunUntilPromptsAreRead());
  simulation.Add(simulation.now(), huge, /*decodes_after=*/false);
  const int64_t begin = simulation.steps();
  simulation.Run([&] { return simulation.steps() == begin + 40; });
  const size_t brief = simulation.Add(simulation.now(), 200, /*decodes_after=*/false);
  EXPECT_TRUE(simulation.Run([&] { return simulation.at(brief).first_token.has_value(); }));
  return simulation.at(brief).FirstTokenAfter();
}

TEST(Fairness, AShortPromptDoesNotWaitForAHugeOne) {
  for (Machine& machine : Machines()) {
    machine.model.depth_doubles_at = 1e12;  // what depth costs is not the schedule's
    for (const SchedulePolicy policy : {SchedulePolicy::kFair, SchedulePolicy::kShortest}) {
      const double behind_16k = ShortBehindHuge(machine.model, Options(policy), 16384);
      const double behind_256k = ShortBehindHuge(machine.model, Options(policy), 262144);
      EXPECT_NEAR(behind_256k, behind_16k, 1e-9) << machine.name;
      // Alone it takes so long; beside one other at most twice, and a step.
      const double alone = ShortBehindHuge(machine.model, Options(policy), 1);
      EXPECT_LE(behind_256k, 2 * alone + 2 * std::max(0.5, 2.2)) << machine.name;
    }
    const double unfair_16k = ShortBehindHuge(machine.model, Options(SchedulePolicy::kFcfs), 16384);
    const double unfair_256k = ShortBehindHuge(machine.model, Options(SchedulePolicy::kFcfs), 262144);
    EXPECT_GT(unfair_256k, 10 * unfair_16k) << machine.name;
  }
}

}  // namespace
}  // namespace millrace::engine
