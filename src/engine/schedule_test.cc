#include "engine/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace millrace::engine {
namespace {

using ::testing::ElementsAreArray;

struct Case {
  const char* what;
  std::vector<int64_t> prompt_left;  // by row; 0: decodes
  int64_t batch_tokens;
  int64_t prefill_tokens;
  uint64_t turn;
  std::vector<ScheduleSlice> expected;
};

std::vector<ScheduleSlice> Schedule(const std::vector<int64_t>& prompt_left, ScheduleLimits limits,
                                    uint64_t turn) {
  std::vector<ScheduleRow> rows;
  for (int64_t left : prompt_left) rows.push_back({left});
  std::vector<ScheduleSlice> batch = {{99, 99}};  // must be cleared
  ScheduleFairShare(rows, limits, turn, batch);
  return batch;
}

TEST(ScheduleFairShare, Table) {
  const Case cases[] = {
      {"nothing runs", {}, 64, 64, 0, {}},
      {"one decodes", {0}, 64, 64, 0, {{0, 1}}},
      {"all decode", {0, 0, 0}, 64, 64, 5, {{0, 1}, {1, 1}, {2, 1}}},
      {"a short prompt goes whole", {10}, 64, 64, 0, {{0, 10}}},
      {"a long prompt fills the chunk", {1000}, 64, 64, 0, {{0, 64}}},
      {"the chunk bounds prefill alone", {1000}, 64, 16, 0, {{0, 16}}},
      {"decode first, prefill takes the rest", {0, 1000, 0}, 64, 64, 0, {{0, 1}, {1, 62}, {2, 1}}},
      {"the chunk does not take decode's tokens", {0, 1000, 0}, 64, 32, 0, {{0, 1}, {1, 32}, {2, 1}}},
      {"equal shares", {1000, 900000}, 64, 64, 0, {{0, 32}, {1, 32}}},
      {"what a short prompt leaves goes to the others",
       {900000, 4, 1000},
       64,
       64,
       0,
       {{0, 30}, {1, 4}, {2, 30}}},
      {"the odd token goes in turns, first", {100, 100, 100}, 64, 64, 0, {{0, 22}, {1, 21}, {2, 21}}},
      {"the odd token goes in turns, second", {100, 100, 100}, 64, 64, 2, {{0, 21}, {1, 22}, {2, 21}}},
      {"the odd token goes in turns, third", {100, 100, 100}, 64, 64, 4, {{0, 21}, {1, 21}, {2, 22}}},
      {"more prompts than tokens", {5, 5, 5, 5}, 2, 2, 0, {{0, 1}, {1, 1}}},
      {"more prompts than tokens, later", {5, 5, 5, 5}, 2, 2, 6, {{0, 1}, {3, 1}}},
      {"more decoders than tokens", {0, 0, 0}, 2, 2, 0, {{0, 1}, {1, 1}}},
      {"more decoders than tokens, later", {0, 0, 0}, 2, 2, 4, {{0, 1}, {2, 1}}},
      {"decoders leave prefill one token", {0, 0, 7}, 2, 2, 0, {{0, 1}, {2, 1}}},
      {"a budget of one: decode's turn", {0, 7}, 1, 1, 0, {{0, 1}}},
      {"a budget of one: prefill's turn", {0, 7}, 1, 1, 1, {{1, 1}}},
      {"a budget of one, only prefill", {7}, 1, 1, 0, {{0, 1}}},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(Schedule(c.prompt_left, {c.batch_tokens, c.prefill_tokens}, c.turn),
                ElementsAreArray(c.expected))
        << c.what;
  }
}

// Runs prompts to their end as the engine would; returns at which step each was through.
std::vector<int> StepsToPrefill(std::vector<int64_t> prompt_left, ScheduleLimits limits) {
  std::vector<int> done(prompt_left.size(), 0);
  for (int step = 0; std::count(done.begin(), done.end(), 0) > 0; ++step) {
    for (const ScheduleSlice& slice : Schedule(prompt_left, limits, static_cast<uint64_t>(step))) {
      if (prompt_left[slice.row] == 0) continue;
      prompt_left[slice.row] -= slice.tokens;
      if (prompt_left[slice.row] == 0) done[slice.row] = step + 1;
    }
  }
  return done;
}

TEST(ScheduleFairShare, AHugePromptDelaysSmallOnesOnlyByItsShare) {
  std::vector<int64_t> prompts = {900000};
  for (int i = 0; i < 7; ++i) prompts.push_back(2000);
  const std::vector<int> done = StepsToPrefill(prompts, {512, 512});
  // 64 tokens a step for each of eight; alone seven would need 28 steps.
  for (size_t i = 1; i < prompts.size(); ++i) EXPECT_LE(done[i], 32);
  // Nothing is lost: the huge one takes what the total needs beside seven that decode.
  EXPECT_LE(done[0], (900000 + 7 * 2000) / (512 - 7) + 1);
}

// Every row moves within a bounded number of steps, whatever the budget and the mix; slices obey all limits.
TEST(ScheduleFairShare, NoRowStarvesAndNoLimitIsBroken) {
  for (int64_t budget = 1; budget <= 9; ++budget) {
    for (int64_t chunk = 1; chunk <= budget; ++chunk) {
      for (int n_decode = 0; n_decode <= 6; ++n_decode) {
        for (int n_prefill = 0; n_prefill <= 6; ++n_prefill) {
          std::vector<int64_t> rows(static_cast<size_t>(n_decode), 0);
          for (int i = 0; i < n_prefill; ++i) rows.insert(rows.begin() + i / 2, 1 + 1000 * i);
          if (rows.empty()) continue;
          std::vector<int64_t> got(rows.size(), 0);
          for (uint64_t turn = 0; turn < 26; ++turn) {
            const auto batch = Schedule(rows, {budget, chunk}, turn);
            ASSERT_FALSE(batch.empty());
            int64_t total = 0;
            int64_t prefill = 0;
            for (size_t i = 0; i < batch.size(); ++i) {
              const ScheduleSlice& slice = batch[i];
              if (i > 0) {
                ASSERT_LT(batch[i - 1].row, slice.row);
              }
              ASSERT_GE(slice.tokens, 1);
              ASSERT_LE(slice.tokens, std::max<int64_t>(rows[slice.row], 1));
              total += slice.tokens;
              if (rows[slice.row] > 0) prefill += slice.tokens;
              got[slice.row] += slice.tokens;
            }
            ASSERT_LE(total, budget);
            ASSERT_LE(prefill, chunk);
          }
          for (int64_t tokens : got) ASSERT_GT(tokens, 0) << budget << " " << chunk << " " << n_decode;
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace::engine
