#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace millrace::engine {

// How prompts that are being read share the prefill budget of a step. Sequences that decode get their token
// under every policy.
enum class SchedulePolicy : uint8_t {
  // In equal parts; what a short prompt does not need goes to the others. A prompt's wait depends on how many
  // prompts there are, not on how long they are.
  kFair,
  // In order of arrival: the first takes all it can use.
  kFcfs,
  // The prompt with the least left first. A quarter of the budget goes to the one that came first, so that
  // the longest is through after at most four times its share of the steps, whatever keeps arriving.
  kShortest,
};

// The policies by name: "fair", "fcfs", "shortest".
std::string_view SchedulePolicyName(SchedulePolicy policy);
inline constexpr std::array<SchedulePolicy, 3> kSchedulePolicies = {
    SchedulePolicy::kFair, SchedulePolicy::kFcfs, SchedulePolicy::kShortest};

// One running sequence as the policy sees it.
struct ScheduleRow {
  // Tokens of the prompt, or of a run that a constraint has forced, that the model has not seen yet. 0: the
  // sequence decodes and needs one token a step.
  int64_t prompt_left = 0;
  // Whatever orders rows by when they came; distinct.
  uint64_t arrival = 0;
  // What kShortest takes for prompt_left when it compares: less when a shorter prompt waits for this one.
  std::optional<int64_t> counts_as = std::nullopt;
};

// A row's part of the next batch; `tokens` >= 1.
struct ScheduleSlice {
  size_t row = 0;
  int64_t tokens = 0;

  friend bool operator==(const ScheduleSlice&, const ScheduleSlice&) = default;
};

struct ScheduleLimits {
  int64_t batch_tokens = 1;    // of one step, decode and prefill together; >= 1
  int64_t prefill_tokens = 1;  // of one step, over all prefilling rows; 0 only when some row decodes
};

// Counters from which it follows whose turn it is when there is not enough for all.
struct ScheduleTurn {
  uint64_t step = 0;     // steps so far
  uint64_t prefill = 0;  // of these, with tokens of prompts: where they are rare, `step` would always choose
                         // the same
};

// A pure function from the running sequences to the next batch.
//
// Every decoding row gets its token; what is left of `batch_tokens`, at most `prefill_tokens`, is shared
// between the prefilling rows as `policy` says. When there is not enough for all, rows take turns. Unless
// `prefill_tokens` is 0, one token of the budget is kept for prefill, so that decoding rows never stop it.
//
// Clears `batch` and fills it in ascending row order; it is non-empty when `rows` is. Allocates only when
// `batch` has too little capacity.
void ScheduleBatch(SchedulePolicy policy, std::span<const ScheduleRow> rows, ScheduleLimits limits,
                   ScheduleTurn turn, std::vector<ScheduleSlice>& batch);

}  // namespace millrace::engine
