#include "engine/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace millrace::engine {
namespace {

using ::testing::ElementsAreArray;

std::vector<ScheduleRow> RowsOf(const std::vector<int64_t>& prompt_left) {
  std::vector<ScheduleRow> rows;
  for (int64_t left : prompt_left) rows.push_back({.prompt_left = left, .arrival = rows.size()});
  return rows;
}

std::vector<ScheduleSlice> Schedule(SchedulePolicy policy, const std::vector<ScheduleRow>& rows,
                                    ScheduleLimits limits, ScheduleTurn turn) {
  std::vector<ScheduleSlice> batch = {{99, 99}};  // must be cleared
  ScheduleBatch(policy, rows, limits, turn, batch);
  return batch;
}

struct Case {
  const char* what;
  std::vector<int64_t> prompt_left;  // by row; 0: decodes
  int64_t batch_tokens;
  int64_t prefill_tokens;
  ScheduleTurn turn;
  std::vector<ScheduleSlice> expected;
};

void ExpectCases(SchedulePolicy policy, std::span<const Case> cases) {
  for (const Case& c : cases) {
    EXPECT_THAT(Schedule(policy, RowsOf(c.prompt_left), {c.batch_tokens, c.prefill_tokens}, c.turn),
                ElementsAreArray(c.expected))
        << c.what;
  }
}

TEST(ScheduleFair, Table) {
  const Case cases[] = {
      {"nothing runs", {}, 64, 64, {}, {}},
      {"one decodes", {0}, 64, 64, {}, {{0, 1}}},
      {"all decode", {0, 0, 0}, 64, 64, {5, 5}, {{0, 1}, {1, 1}, {2, 1}}},
      {"a short prompt goes whole", {10}, 64, 64, {}, {{0, 10}}},
      {"a long prompt fills the chunk", {1000}, 64, 64, {}, {{0, 64}}},
      {"the chunk bounds prefill alone", {1000}, 64, 16, {}, {{0, 16}}},
      {"decode first, prefill takes the rest", {0, 1000, 0}, 64, 64, {}, {{0, 1}, {1, 62}, {2, 1}}},
      {"the chunk does not take decode's tokens", {0, 1000, 0}, 64, 32, {}, {{0, 1}, {1, 32}, {2, 1}}},
      {"no chunk at all", {0, 1000, 0}, 64, 0, {}, {{0, 1}, {2, 1}}},
      {"no chunk at all and a budget of one", {0, 1000}, 1, 0, {1, 0}, {{0, 1}}},
      {"equal shares", {1000, 900000}, 64, 64, {}, {{0, 32}, {1, 32}}},
      {"what a short prompt leaves goes to the others",
       {900000, 4, 1000},
       64,
       64,
       {},
       {{0, 30}, {1, 4}, {2, 30}}},
      {"the odd token goes in turns, first", {100, 100, 100}, 64, 64, {9, 0}, {{0, 22}, {1, 21}, {2, 21}}},
      {"the odd token goes in turns, second", {100, 100, 100}, 64, 64, {9, 1}, {{0, 21}, {1, 22}, {2, 21}}},
      {"the odd token goes in turns, third", {100, 100, 100}, 64, 64, {9, 2}, {{0, 21}, {1, 21}, {2, 22}}},
      {"more prompts than tokens", {5, 5, 5, 5}, 2, 2, {}, {{0, 1}, {1, 1}}},
      {"more prompts than tokens, later", {5, 5, 5, 5}, 2, 2, {9, 3}, {{0, 1}, {3, 1}}},
      {"more decoders than tokens", {0, 0, 0}, 2, 2, {}, {{0, 1}, {1, 1}}},
      {"more decoders than tokens, later", {0, 0, 0}, 2, 2, {4, 9}, {{0, 1}, {2, 1}}},
      {"decoders leave prefill one token", {0, 0, 7}, 2, 2, {}, {{0, 1}, {2, 1}}},
      {"a budget of one: decode's turn", {0, 7}, 1, 1, {}, {{0, 1}}},
      {"a budget of one: prefill's turn", {0, 7}, 1, 1, {1, 0}, {{1, 1}}},
      {"a budget of one, only prefill", {7}, 1, 1, {}, {{0, 1}}},
  };
  ExpectCases(SchedulePolicy::kFair, cases);
}

TEST(ScheduleFcfs, Table) {
  const Case cases[] = {
      {"the first takes all", {1000, 4, 1000}, 64, 64, {}, {{0, 64}}},
      {"and leaves what it cannot use", {10, 4, 1000}, 64, 64, {}, {{0, 10}, {1, 4}, {2, 50}}},
      {"decode goes on", {0, 1000, 900, 0}, 64, 64, {}, {{0, 1}, {1, 62}, {3, 1}}},
      {"no chunk at all", {0, 1000}, 64, 0, {}, {{0, 1}}},
  };
  ExpectCases(SchedulePolicy::kFcfs, cases);
}

TEST(ScheduleFcfs, GoesByArrivalAndNotByRow) {
  std::vector<ScheduleRow> rows = RowsOf({30, 30, 30});
  rows[0].arrival = 7;  // a row that was taken out of the batch and came back
  rows[1].arrival = 5;
  rows[2].arrival = 6;
  EXPECT_THAT(Schedule(SchedulePolicy::kFcfs, rows, {64, 64}, {}),
              ElementsAreArray(std::vector<ScheduleSlice>{{0, 4}, {1, 30}, {2, 30}}));
}

TEST(ScheduleShortest, Table) {
  const Case cases[] = {
      {"alone", {1000}, 64, 64, {}, {{0, 64}}},
      {"the shortest first, a quarter to the oldest", {1000, 900, 800}, 64, 64, {}, {{0, 16}, {2, 48}}},
      {"the shortest is the oldest", {700, 900, 800}, 64, 64, {}, {{0, 64}}},
      {"several short ones", {1000, 7, 3, 90}, 64, 64, {}, {{0, 16}, {1, 7}, {2, 3}, {3, 38}}},
      {"a short rest of the oldest", {5, 900}, 64, 64, {}, {{0, 5}, {1, 59}}},
      {"equal lengths: the earlier", {1000, 9, 9}, 16, 16, {}, {{0, 4}, {1, 9}, {2, 3}}},
      {"a budget of one: the oldest's turn", {1000, 7}, 1, 1, {9, 0}, {{0, 1}}},
      {"a budget of one: the shortest's turn", {1000, 7}, 1, 1, {9, 1}, {{1, 1}}},
      {"decode goes on", {0, 1000, 40}, 64, 41, {}, {{0, 1}, {1, 11}, {2, 30}}},
  };
  ExpectCases(SchedulePolicy::kShortest, cases);
}

TEST(ScheduleShortest, AQuarterIsAQuarterOverFourTurnsWhateverTheBudget) {
  for (int64_t budget = 1; budget <= 11; ++budget) {
    int64_t oldest = 0;
    for (uint64_t turn = 0; turn < 4; ++turn) {
      for (const ScheduleSlice& slice :
           Schedule(SchedulePolicy::kShortest, RowsOf({100000, 100}), {budget, budget}, {0, turn})) {
        if (slice.row == 0) oldest += slice.tokens;
      }
    }
    EXPECT_EQ(oldest, budget);
  }
}

// Runs prompts to their end as the engine would, with nobody else arriving; returns at which step each was
// through.
std::vector<int> StepsToPrefill(SchedulePolicy policy, std::vector<int64_t> prompt_left,
                                ScheduleLimits limits) {
  std::vector<int> done(prompt_left.size(), 0);
  for (int step = 0; std::count(done.begin(), done.end(), 0) > 0; ++step) {
    const auto turn = static_cast<uint64_t>(step);
    for (const ScheduleSlice& slice : Schedule(policy, RowsOf(prompt_left), limits, {turn, turn})) {
      if (prompt_left[slice.row] == 0) continue;
      prompt_left[slice.row] -= slice.tokens;
      if (prompt_left[slice.row] == 0) done[slice.row] = step + 1;
    }
  }
  return done;
}

std::vector<int64_t> HugeAndSevenSmall() {
  std::vector<int64_t> prompts = {900000};
  for (int i = 0; i < 7; ++i) prompts.push_back(2000);
  return prompts;
}

TEST(ScheduleFair, AHugePromptDelaysSmallOnesOnlyByItsShare) {
  const std::vector<int> done = StepsToPrefill(SchedulePolicy::kFair, HugeAndSevenSmall(), {512, 512});
  // 64 tokens a step for each of eight; alone seven would need 28 steps.
  for (size_t i = 1; i < done.size(); ++i) EXPECT_LE(done[i], 32);
  // Nothing is lost: the huge one takes what the total needs beside seven that decode.
  EXPECT_LE(done[0], (900000 + 7 * 2000) / (512 - 7) + 1);
}

TEST(ScheduleShortest, SmallPromptsWaitForAQuarterOfTheHugeOneAtMost) {
  const std::vector<int> done = StepsToPrefill(SchedulePolicy::kShortest, HugeAndSevenSmall(), {512, 512});
  for (size_t i = 1; i < done.size(); ++i) EXPECT_LE(done[i], 7 * 2000 / (512 * 3 / 4 - 7) + 2);
  EXPECT_LE(done[1], 2000 / (512 * 3 / 4) + 1) << "the first is not slowed by those behind it";
}

// A stream of short prompts that never ends, each there before the last is through, keeps the policy's word
// to a long one.
TEST(ScheduleShortest, AnEndlessStreamOfShortPromptsDoesNotStarveALongOne) {
  std::vector<ScheduleRow> rows = RowsOf({8000, 100, 100, 100});
  uint64_t arrivals = rows.size();
  int steps = 0;
  for (; rows[0].prompt_left > 0 && steps < 1000; ++steps) {
    const auto turn = static_cast<uint64_t>(steps);
    for (const ScheduleSlice& slice : Schedule(SchedulePolicy::kShortest, rows, {64, 64}, {turn, turn})) {
      ScheduleRow& row = rows[slice.row];
      row.prompt_left -= slice.tokens;
      if (row.prompt_left == 0 && slice.row > 0) row = {.prompt_left = 100, .arrival = ++arrivals};
    }
  }
  EXPECT_LE(steps, 4 * 8000 / 64 + 1);
}

struct Mix {
  int64_t budget;
  int64_t chunk;
  int n_decode;
  int n_prefill;
};

void ExpectLimitsHold(const std::vector<ScheduleRow>& rows, const std::vector<ScheduleSlice>& batch,
                      const Mix& mix) {
  ASSERT_FALSE(batch.empty());
  int64_t total = 0;
  int64_t prefill = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const ScheduleSlice& slice = batch[i];
    const ScheduleRow& row = rows[slice.row];
    if (i > 0) {
      ASSERT_LT(batch[i - 1].row, slice.row);
    }
    ASSERT_GE(slice.tokens, 1);
    ASSERT_LE(slice.tokens, std::max<int64_t>(row.prompt_left, 1));
    total += slice.tokens;
    if (row.prompt_left > 0) prefill += slice.tokens;
  }
  ASSERT_LE(total, mix.budget);
  ASSERT_LE(prefill, mix.chunk);
  // No token of the budget is wasted that somebody could use.
  int64_t could_use = 0;
  for (const ScheduleRow& row : rows) could_use += row.prompt_left;
  if (mix.budget > 1) {
    ASSERT_EQ(prefill, std::min({could_use, mix.chunk, mix.budget - (total - prefill)}));
  }
}

// Slices obey all limits, whatever the budget, the mix and the policy, and rows that must not starve move
// within a bounded number of steps: under "fair" all of them, under the others those that decode and, of
// prompts, the one that came first.
void ExpectNothingStarves(SchedulePolicy policy, const Mix& mix) {
  std::vector<ScheduleRow> rows = RowsOf(std::vector<int64_t>(static_cast<size_t>(mix.n_decode), 0));
  for (int i = 0; i < mix.n_prefill; ++i)
    rows.insert(rows.begin() + i / 2, {.prompt_left = i % 3 == 2 ? 2 : 1 + 1000 * i});
  for (size_t i = 0; i < rows.size(); ++i) rows[i].arrival = 100 + i;
  if (rows.empty()) return;
  std::vector<int64_t> got(rows.size(), 0);
  ScheduleTurn turn;
  // Prompts get a turn at every third step only, as when the chunk is paced.
  for (; turn.step < 84; ++turn.step) {
    Mix now = mix;
    if (mix.n_decode > 0 && turn.step / 2 % 3 != 0) now.chunk = 0;
    const auto batch = Schedule(policy, rows, {now.budget, now.chunk}, turn);
    ASSERT_NO_FATAL_FAILURE(ExpectLimitsHold(rows, batch, now));
    bool prefilled = false;
    for (const ScheduleSlice& slice : batch) {
      got[slice.row] += slice.tokens;
      prefilled = prefilled || rows[slice.row].prompt_left > 0;
    }
    turn.prefill += prefilled;
  }
  bool first_prompt = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool prompt = rows[i].prompt_left > 0;
    if (policy == SchedulePolicy::kFair || !prompt || first_prompt) {
      ASSERT_GT(got[i], 0) << SchedulePolicyName(policy) << " " << mix.budget << " " << mix.chunk << " "
                           << mix.n_decode << " " << mix.n_prefill << " row " << i;
    }
    if (prompt) first_prompt = false;
  }
}

TEST(Schedule, NoRowStarvesAndNoLimitIsBroken) {
  for (const SchedulePolicy policy : kSchedulePolicies) {
    for (int64_t budget = 1; budget <= 9; ++budget) {
      for (int64_t chunk = 1; chunk <= budget; ++chunk) {
        for (int n_decode = 0; n_decode <= 6; ++n_decode) {
          for (int n_prefill = 0; n_prefill <= 6; ++n_prefill) {
            ASSERT_NO_FATAL_FAILURE(ExpectNothingStarves(policy, {budget, chunk, n_decode, n_prefill}));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace::engine
