#include "engine/chunk_controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "engine/step_simulation_testing.h"

namespace millrace::engine {
namespace {

constexpr int64_t kMaxChunk = 4096;

// A controller and a machine, step by step, with prompts that never end.
class Bench {
 public:
  explicit Bench(MachineModel machine, PaceOptions pace = {.max_gap_seconds = 0.5, .min_decode_share = 0})
      : machine_(std::move(machine)), controller_(pace, kMaxChunk, 64) {}

  // Runs one step with `rows` decoding; its cost.
  StepCost Step(int64_t rows, int64_t depth = 0) {
    StepCost cost{rows, controller_.NextChunk(rows), 0};
    EXPECT_TRUE(cost.prefill_tokens >= 0 && cost.prefill_tokens <= kMaxChunk);
    if (rows == 0) {
      EXPECT_EQ(cost.prefill_tokens, kMaxChunk) << "nobody is slowed";
    }
    cost.seconds = machine_.Seconds(cost, depth, step_++);
    controller_.OnStep(cost);
    return cost;
  }
  std::vector<StepCost> Steps(int n, int64_t rows, int64_t depth = 0) {
    std::vector<StepCost> costs;
    for (int i = 0; i < n; ++i) costs.push_back(Step(rows, depth));
    return costs;
  }
  ChunkController& controller() { return controller_; }

 private:
  MachineModel machine_;
  ChunkController controller_;
  int64_t step_ = 0;
};

double Longest(const std::vector<StepCost>& costs) {
  return std::ranges::max(costs, {}, &StepCost::seconds).seconds;
}

double Mean(const std::vector<StepCost>& costs) {
  double sum = 0;
  for (const StepCost& cost : costs) sum += cost.seconds;
  return sum / static_cast<double>(costs.size());
}

int64_t PromptTokens(const std::vector<StepCost>& costs) {
  int64_t tokens = 0;
  for (const StepCost& cost : costs) tokens += cost.prefill_tokens;
  return tokens;
}

TEST(ChunkController, ReadsInWholeChunksWhenNobodyDecodes) {
  Bench bench({});
  bench.Steps(5, 0);
  bench.Steps(20, 4);
  EXPECT_EQ(bench.controller().NextChunk(0), kMaxChunk);
}

TEST(ChunkController, WithoutLimitsChunksAreWhole) {
  Bench bench({}, {.max_gap_seconds = 0, .min_decode_share = 0});
  for (const StepCost& cost : bench.Steps(5, 4)) EXPECT_EQ(cost.prefill_tokens, kMaxChunk);
}

// Whatever it was taught before, it is near the limit within a few steps and never over it on a machine that
// does what it did.
TEST(ChunkController, ConvergesWithinAFewSteps) {
  for (const double token : {0.00002, 0.0005, 0.005, 0.02}) {
    for (const double small_extra : {0.0, 0.5, 3.0}) {
      for (const bool read_before : {false, true}) {
        Bench bench({.prefill_token = token, .small_chunk_extra = small_extra});
        if (read_before) bench.Steps(1, 0);
        const auto begin = bench.Steps(12, 4);
        EXPECT_EQ(begin[0].prefill_tokens, 0) << "it looks at decoding alone first";
        EXPECT_LE(Longest(begin), 0.5) << token << " " << small_extra;
        for (const StepCost& cost : bench.Steps(40, 4)) {
          EXPECT_LE(cost.seconds, 0.5) << token << " " << small_extra;
          const bool full = cost.prefill_tokens == kMaxChunk;
          EXPECT_TRUE(cost.seconds > 0.35 || full) << token << " " << small_extra << " " << cost.seconds;
        }
      }
    }
  }
}

TEST(ChunkController, FollowsADepthThatGrows) {
  Bench bench({.prefill_token = 0.001, .depth_doubles_at = 32768});
  int64_t depth = 0;
  for (int i = 0; i < 3000; ++i) {
    const StepCost cost = bench.Step(4, depth);
    depth += cost.prefill_tokens;
    ASSERT_LE(cost.seconds, 0.5) << depth;
    if (i > 12 && cost.prefill_tokens > 0) {
      ASSERT_GT(cost.seconds, 0.3) << depth;
    }
  }
  EXPECT_GT(depth, 200'000);
}

TEST(ChunkController, ASuddenSlowdownIsFeltForTwoStepsAtMost) {
  for (const double slowdown : {2.0, 5.0, 20.0}) {
    Bench bench(
        {.base = 0.005, .decode_row = 0.0005, .small_chunk_extra = 0.0, .slowdown = [slowdown](int64_t step) {
           return step < 30 ? 1.0 : slowdown;
         }});
    EXPECT_LE(Longest(bench.Steps(30, 4)), 0.5);
    const auto after = bench.Steps(60, 4);
    const auto over = std::ranges::count_if(after, [](const StepCost& cost) { return cost.seconds > 0.5; });
    EXPECT_GE(over, 1) << "nobody could know";
    EXPECT_LE(over, 2) << slowdown;
    EXPECT_GT(Mean(std::vector(after.end() - 20, after.end())), 0.3) << "and it uses what there is again";
  }
}

TEST(ChunkController, OneSlowStepIsForgottenSoon) {
  Bench bench({.slowdown = [](int64_t step) { return step == 30 ? 8.0 : 1.0; }});
  bench.Steps(30, 4);
  const int64_t before = bench.controller().NextChunk(4);
  bench.Steps(1, 4);
  EXPECT_LT(bench.controller().NextChunk(4), before / 4);
  bench.Steps(16, 4);
  EXPECT_GT(bench.controller().NextChunk(4), before / 2);
  bench.Steps(60, 4);
  EXPECT_GT(bench.controller().NextChunk(4), before * 9 / 10);
}

// A machine whose every step takes up to a third more or less than it should.
TEST(ChunkController, NoiseRarelyTakesItOverTheLimit) {
  std::mt19937 rng(7);
  std::vector<double> noise(2000);
  for (double& factor : noise) factor = std::uniform_real_distribution(0.75, 1.33)(rng);
  Bench bench({.slowdown = [&](int64_t step) { return noise[static_cast<size_t>(step)]; }});
  const auto costs = bench.Steps(2000, 4);
  const auto over = std::ranges::count_if(costs, [](const StepCost& cost) { return cost.seconds > 0.5; });
  EXPECT_LE(over, 2000 / 50);
  EXPECT_LE(Longest(costs), 0.5 * 1.34);
  EXPECT_GT(PromptTokens(costs), 2000 * 400) << "and it does not buy that with idle time";
}

TEST(ChunkController, ReadingGoesOnWhereDecodingAloneExceedsTheLimit) {
  // Decoding takes 2 seconds, a token of a prompt one.
  Bench bench({.base = 2, .decode_row = 0, .prefill_token = 1},
              {.max_gap_seconds = 0.5, .min_decode_share = 1});
  const auto costs = bench.Steps(200, 4);
  EXPECT_GE(PromptTokens(costs), 40);
  EXPECT_LE(Longest(costs), 2 + 4 * 1.5) << "the smallest chunk";
}

TEST(ChunkController, KeepsTheShareOnAverage) {
  for (const double share : {0.1, 0.3, 0.5, 0.6}) {
    for (const double token : {0.0001, 0.001, 0.005}) {
      Bench bench({.base = 0.040, .decode_row = 0.001, .prefill_token = token},
                  {.max_gap_seconds = 0.5, .min_decode_share = share});
      bench.Steps(3, 1);  // one stream alone: 41 ms
      for (int i = 0; i < 5; ++i) bench.controller().OnStep({1, 0, 0.041});
      const auto costs = bench.Steps(600, 4);
      EXPECT_LE(Mean(costs), 0.041 / share * 1.02) << share << " " << token;
      EXPECT_GE(Mean(costs), std::min(0.041 / share * 0.8, 0.4)) << "and no more than that";
      EXPECT_LE(Longest(costs), 0.5);
    }
  }
}

TEST(ChunkController, TheShareAloneLeavesChunksWhole) {
  Bench bench({.base = 0.010}, {.max_gap_seconds = 0, .min_decode_share = 0.3});
  const auto costs = bench.Steps(4000, 4);
  int64_t chunks = 0;
  for (const StepCost& cost : costs) {
    EXPECT_TRUE(cost.prefill_tokens == 0 || cost.prefill_tokens == kMaxChunk);
    chunks += cost.prefill_tokens > 0;
  }
  EXPECT_GT(chunks, 10);
  EXPECT_LE(Mean(costs), 0.018 / 0.3 * 1.05);
}

// However wrong what it believes: a machine that becomes a hundred times slower for good cannot make prompts
// wait for ever.
TEST(ChunkController, PromptsMoveWhateverItBelieves) {
  Bench bench({.slowdown = [](int64_t step) { return step < 30 ? 1.0 : 100.0; }},
              {.max_gap_seconds = 0.5, .min_decode_share = 0.9});
  bench.Steps(30, 1);
  int64_t pause = 0;
  int64_t longest_pause = 0;
  for (const StepCost& cost : bench.Steps(3000, 8)) {
    pause = cost.prefill_tokens > 0 ? 0 : pause + 1;
    longest_pause = std::max(longest_pause, pause);
  }
  EXPECT_LE(longest_pause, 40);
}

TEST(ChunkController, AChunkIsAtMostTwiceTheLast) {
  Bench bench({.prefill_token = 1e-7});
  int64_t last = 4;
  for (const StepCost& cost : bench.Steps(30, 4)) {
    if (cost.prefill_tokens == 0) continue;
    EXPECT_LE(cost.prefill_tokens, 2 * last);
    last = cost.prefill_tokens;
  }
  EXPECT_EQ(last, kMaxChunk);
}

// Eight together are slower than a nine-tenths share of one alone, whatever is read or not.
TEST(ChunkController, ReadingGetsAThirdOfTheTimeWhateverTheShare) {
  const MachineModel machine{.base = 0.001, .decode_row = 0.050};
  Bench bench(machine, {.max_gap_seconds = 0.5, .min_decode_share = 0.9});
  bench.Steps(5, 1);
  const auto costs = bench.Steps(400, 8);
  double total = 0;
  double decoding = 0;
  for (const StepCost& cost : costs) {
    total += cost.seconds;
    decoding += machine.Seconds({cost.decode_rows, 0, 0}, 0, 0);
  }
  EXPECT_GE((total - decoding) / total, 1.0 / 3);
  EXPECT_LE((total - decoding) / total, 0.5) << "and little more";
}

// The machine was asleep for an hour in the middle of a step.
TEST(ChunkController, OneHugeStepDoesNotHoldUpPrompts) {
  bool slept_in_chunk = false;
  for (int asleep = 20; asleep < 40; ++asleep) {
    Bench bench({.slowdown = [=](int64_t step) { return step == asleep ? 1e5 : 1.0; }},
                {.max_gap_seconds = 0.5, .min_decode_share = 0.3});
    slept_in_chunk = bench.Steps(asleep + 1, 1).back().prefill_tokens > 0 || slept_in_chunk;
    double waited = 0;
    for (const StepCost& cost : bench.Steps(1000, 4)) {
      ASSERT_LE(cost.seconds, 0.5) << asleep;
      if (cost.prefill_tokens > 0) break;
      waited += cost.seconds;
    }
    EXPECT_LE(waited, 8.1 * 0.5) << asleep;
  }
  EXPECT_TRUE(slept_in_chunk);
}

// While every step reads, none shows what decoding alone takes: it looks again now and then.
TEST(ChunkController, DecodingThatBecomesFasterIsNoticed) {
  Bench bench({.base = 0.040, .decode_row = 0, .prefill_token = 0.0005, .slowdown = [](int64_t step) {
                 return step < 20 ? 10.0 : 1.0;
               }});
  EXPECT_GT(Longest(bench.Steps(20, 4)), 0.6) << "twice what decoding takes is allowed";
  bench.Steps(135, 4);
  const auto costs = bench.Steps(100, 4);
  EXPECT_LE(Longest(costs), 0.5);
  EXPECT_GT(Mean(costs), 0.4);
}

// Processes of others take the processor away for whole slices of time: most steps are as short as ever, some
// many times as long, so that estimates are wrong nearly always.
TEST(ChunkController, ReadingGetsItsTimeOnAMachineThatOthersUse) {
  const MachineModel machine{.base = 0.0005, .decode_row = 0.0003, .prefill_token = 0.0001};
  for (const double stolen : {0.5, 0.8, 0.9}) {
    std::mt19937 rng(3);
    double left = 0.004;  // of our slice
    const auto clock = [&](double seconds) {
      double passed = seconds;
      for (; seconds > left; left = std::uniform_real_distribution(0.001, 0.010)(rng)) {
        seconds -= left;
        passed += left * stolen / (1 - stolen) * std::uniform_real_distribution(0.0, 2.0)(rng);
      }
      left -= seconds;
      return passed;
    };
    ChunkController controller({}, 64, 64);
    double total = 0;
    double reading = 0;
    for (int i = 0; i < 20'000; ++i) {
      const StepCost alone{i < 50 ? 1 : 2, 0, 0};
      StepCost cost = alone;
      if (i >= 50) cost.prefill_tokens = controller.NextChunk(2);
      const double seconds = machine.Seconds(cost, 0, i);
      cost.seconds = clock(seconds);
      controller.OnStep(cost);
      total += seconds;
      reading += seconds - machine.Seconds(alone, 0, i);
    }
    EXPECT_GE(reading / total, 0.2) << stolen << ": a third by the clock";
    EXPECT_LE(reading / total, 0.65) << stolen << ": two streams keep 0.3 of what one has in 0.4 of the time";
  }
}

TEST(ChunkController, KnowsDecodingByTheNearestCountOfRows) {
  ChunkController controller({}, 512, 8);
  EXPECT_FALSE(controller.DecodeSeconds(1).has_value());
  controller.OnStep({2, 0, 0.02});
  controller.OnStep({6, 0, 0.06});
  EXPECT_EQ(controller.DecodeSeconds(1), 0.02);
  EXPECT_EQ(controller.DecodeSeconds(2), 0.02);
  EXPECT_EQ(controller.DecodeSeconds(5), 0.02);
  EXPECT_EQ(controller.DecodeSeconds(8), 0.06);
  EXPECT_EQ(controller.DecodeSeconds(99), 0.06);
}

}  // namespace
}  // namespace millrace::engine
