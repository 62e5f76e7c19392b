#include "engine/schedule.h"

#include <algorithm>

#include "base/check.h"

namespace millrace::engine {
namespace {

// The budgets of the two kinds of row for one step.
struct Budget {
  int64_t decode = 0;
  int64_t prefill = 0;
};

Budget SplitBudget(int64_t n_decode, int64_t n_prefill, ScheduleLimits limits, uint64_t turn) {
  Budget budget;
  int64_t decode_cap = limits.batch_tokens;
  // With a budget of one token the two kinds take turns.
  if (n_prefill > 0 && (limits.batch_tokens > 1 || turn % 2 == 1)) --decode_cap;
  budget.decode = std::min(n_decode, decode_cap);
  if (n_prefill > 0) budget.prefill = std::min(limits.prefill_tokens, limits.batch_tokens - budget.decode);
  return budget;
}

// The most that each row may take so that rows which need less leave the rest to the others: the largest
// level with sum(min(need, level)) <= budget.
int64_t FairLevel(std::span<const ScheduleRow> rows, int64_t budget) {
  int64_t low = 0;
  int64_t high = budget;
  while (low < high) {
    const int64_t level = low + (high - low + 1) / 2;
    int64_t sum = 0;
    for (const ScheduleRow& row : rows) sum += std::min(row.prompt_left, level);
    if (sum <= budget) {
      low = level;
    } else {
      high = level - 1;
    }
  }
  return low;
}

// Which of `n` equals come first: true for `winners` of them. The first moves on every second turn, because
// with a budget of one token each kind of row has only every second turn.
bool HasTurn(int64_t index, int64_t n, int64_t winners, uint64_t turn) {
  const auto first = static_cast<int64_t>(turn / 2 % static_cast<uint64_t>(n));
  return (index - first + n) % n < winners;
}

}  // namespace

void ScheduleFairShare(std::span<const ScheduleRow> rows, ScheduleLimits limits, uint64_t turn,
                       std::vector<ScheduleSlice>& batch) {
  MILLRACE_CHECK(limits.batch_tokens >= 1 && limits.prefill_tokens >= 1, "a batch without tokens");
  batch.clear();
  int64_t n_decode = 0;
  int64_t n_prefill = 0;
  for (const ScheduleRow& row : rows) ++(row.prompt_left == 0 ? n_decode : n_prefill);
  const Budget budget = SplitBudget(n_decode, n_prefill, limits, turn);

  const int64_t level = FairLevel(rows, budget.prefill);
  int64_t level_sum = 0;
  int64_t n_wanting = 0;  // rows that could use a token above the level
  for (const ScheduleRow& row : rows) {
    level_sum += std::min(row.prompt_left, level);
    n_wanting += row.prompt_left > level;
  }
  const int64_t extra = std::min(budget.prefill - level_sum, n_wanting);

  int64_t decode_index = 0;
  int64_t wanting_index = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    int64_t tokens = 0;
    if (rows[i].prompt_left == 0) {
      tokens = HasTurn(decode_index++, n_decode, budget.decode, turn);
    } else {
      tokens = std::min(rows[i].prompt_left, level);
      if (rows[i].prompt_left > level) tokens += HasTurn(wanting_index++, n_wanting, extra, turn);
    }
    if (tokens > 0) batch.push_back({i, tokens});
  }
}

}  // namespace millrace::engine
