#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace::engine {

// One running sequence as the policy sees it.
struct ScheduleRow {
  // Tokens of the prompt, or of a run that a constraint has forced, that the model has not seen yet. 0: the
  // sequence decodes and needs one token a step.
  int64_t prompt_left = 0;
};

// A row's part of the next batch; `tokens` >= 1.
struct ScheduleSlice {
  size_t row = 0;
  int64_t tokens = 0;

  friend bool operator==(const ScheduleSlice&, const ScheduleSlice&) = default;
};

struct ScheduleLimits {
  int64_t batch_tokens = 1;    // of one step, decode and prefill together; >= 1
  int64_t prefill_tokens = 1;  // of one step, over all prefilling rows; >= 1
};

// The fair-share policy: a pure function from the running sequences to the next batch.
//
// Every decoding row gets its token; what is left of `batch_tokens`, at most `prefill_tokens`, is shared in
// equal parts between the prefilling rows, and what a short prompt does not need goes to the others. So a
// prompt's wait depends on how many prompts there are, not on how long they are.
// When there is not enough for all, rows take turns: `turn`, which the caller increments every step, says who
// comes first. One token of the budget is kept for prefill, so that decoding rows never stop it.
//
// Clears `batch` and fills it in ascending row order; it is non-empty when `rows` is. Allocates only when
// `batch` has too little capacity.
void ScheduleFairShare(std::span<const ScheduleRow> rows, ScheduleLimits limits, uint64_t turn,
                       std::vector<ScheduleSlice>& batch);

}  // namespace millrace::engine
