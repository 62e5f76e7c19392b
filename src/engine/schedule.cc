#include "engine/schedule.h"

#include <algorithm>

#include "base/check.h"

namespace millrace::engine {
namespace {

using Rows = std::span<const ScheduleRow>;
using Batch = std::vector<ScheduleSlice>;

// The budgets of the two kinds of row for one step.
struct Budget {
  int64_t decode = 0;
  int64_t prefill = 0;
};

Budget SplitBudget(int64_t n_decode, int64_t n_prefill, ScheduleLimits limits, uint64_t step) {
  Budget budget;
  const bool prefills = n_prefill > 0 && limits.prefill_tokens > 0;
  int64_t decode_cap = limits.batch_tokens;
  // With a budget of one token the two kinds take turns.
  if (prefills && (limits.batch_tokens > 1 || step % 2 == 1)) --decode_cap;
  budget.decode = std::min(n_decode, decode_cap);
  if (prefills) budget.prefill = std::min(limits.prefill_tokens, limits.batch_tokens - budget.decode);
  return budget;
}

// Which of `n` equals come first in turn `turn`: true for `winners` of them.
bool HasTurn(int64_t index, int64_t n, int64_t winners, uint64_t turn) {
  const auto first = static_cast<int64_t>(turn % static_cast<uint64_t>(n));
  return (index - first + n) % n < winners;
}

// The most that each row may take so that rows which need less leave the rest to the others: the largest
// level with sum(min(wanted, level)) <= budget.
int64_t FairLevel(Rows rows, const Batch& batch, int64_t budget) {
  int64_t low = 0;
  int64_t high = budget;
  while (low < high) {
    const int64_t level = low + (high - low + 1) / 2;
    int64_t sum = 0;
    for (const ScheduleSlice& slice : batch) sum += std::min(rows[slice.row].prompt_left, level);
    if (sum <= budget) {
      low = level;
    } else {
      high = level - 1;
    }
  }
  return low;
}

// The policies fill the tokens of `batch`, which holds a slice without tokens for each prefilling row.

void ShareEqually(Rows rows, int64_t budget, uint64_t turn, Batch& batch) {
  const int64_t level = FairLevel(rows, batch, budget);
  int64_t level_sum = 0;
  int64_t n_wanting = 0;  // rows that could use a token above the level
  for (ScheduleSlice& slice : batch) {
    slice.tokens = std::min(rows[slice.row].prompt_left, level);
    level_sum += slice.tokens;
    n_wanting += rows[slice.row].prompt_left > level;
  }
  const int64_t extra = std::min(budget - level_sum, n_wanting);
  int64_t wanting_index = 0;
  for (ScheduleSlice& slice : batch) {
    if (rows[slice.row].prompt_left > level) slice.tokens += HasTurn(wanting_index++, n_wanting, extra, turn);
  }
}

// In the order of the batch, each all that it can use.
void GiveInOrder(Rows rows, int64_t budget, Batch& batch) {
  for (ScheduleSlice& slice : batch) {
    const int64_t tokens = std::min(rows[slice.row].prompt_left - slice.tokens, budget);
    slice.tokens += tokens;
    budget -= tokens;
  }
}

void GiveFirstCome(Rows rows, int64_t budget, Batch& batch) {
  std::ranges::sort(batch, {}, [&](const ScheduleSlice& slice) { return rows[slice.row].arrival; });
  GiveInOrder(rows, budget, batch);
}

void GiveShortest(Rows rows, int64_t budget, uint64_t turn, Batch& batch) {
  // A quarter; of small budgets the whole in turns.
  const int64_t reserved = budget / 4 + (static_cast<int64_t>(turn % 4) < budget % 4);
  const auto oldest = std::ranges::min_element(
      batch, {}, [&](const ScheduleSlice& slice) { return rows[slice.row].arrival; });
  oldest->tokens = std::min(rows[oldest->row].prompt_left, reserved);
  const int64_t given = oldest->tokens;
  std::ranges::sort(batch, [&](const ScheduleSlice& a, const ScheduleSlice& b) {
    const ScheduleRow& x = rows[a.row];
    const ScheduleRow& y = rows[b.row];
    const int64_t x_left = x.counts_as.value_or(x.prompt_left);
    const int64_t y_left = y.counts_as.value_or(y.prompt_left);
    return x_left != y_left ? x_left < y_left : x.arrival < y.arrival;
  });
  GiveInOrder(rows, budget - given, batch);
}

void AddDecodingRows(Rows rows, int64_t n_decode, int64_t budget, uint64_t step, Batch& batch) {
  int64_t index = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    // The first moves on every second step, because with a budget of one token decode has only every second.
    if (rows[i].prompt_left == 0 && HasTurn(index++, n_decode, budget, step / 2)) batch.push_back({i, 1});
  }
}

}  // namespace

std::string_view SchedulePolicyName(SchedulePolicy policy) {
  switch (policy) {
    case SchedulePolicy::kFair:
      return "fair";
    case SchedulePolicy::kFcfs:
      return "fcfs";
    case SchedulePolicy::kShortest:
      return "shortest";
  }
  return "";
}

void ScheduleBatch(SchedulePolicy policy, std::span<const ScheduleRow> rows, ScheduleLimits limits,
                   ScheduleTurn turn, std::vector<ScheduleSlice>& batch) {
  MILLRACE_CHECK(limits.batch_tokens >= 1 && limits.prefill_tokens >= 0, "a batch without tokens");
  batch.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].prompt_left > 0) batch.push_back({i, 0});
  }
  const auto n_prefill = static_cast<int64_t>(batch.size());
  const auto n_decode = static_cast<int64_t>(rows.size()) - n_prefill;
  MILLRACE_CHECK(n_prefill == 0 || n_decode > 0 || limits.prefill_tokens > 0,
                 "nobody decodes and prompts may not be read: nothing would ever move");
  const Budget budget = SplitBudget(n_decode, n_prefill, limits, turn.step);
  if (budget.prefill > 0) {
    switch (policy) {
      case SchedulePolicy::kFair:
        ShareEqually(rows, budget.prefill, turn.prefill, batch);
        break;
      case SchedulePolicy::kFcfs:
        GiveFirstCome(rows, budget.prefill, batch);
        break;
      case SchedulePolicy::kShortest:
        GiveShortest(rows, budget.prefill, turn.prefill, batch);
        break;
    }
  }
  std::erase_if(batch, [](const ScheduleSlice& slice) { return slice.tokens == 0; });
  AddDecodingRows(rows, n_decode, budget.decode, turn.step, batch);
  std::ranges::sort(batch, {}, &ScheduleSlice::row);
}

}  // namespace millrace::engine
