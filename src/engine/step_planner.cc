#include "engine/step_planner.h"

#include <algorithm>

namespace millrace::engine {

StepPlanner::StepPlanner(const PlannerOptions& options)
    : options_(options),
      chunks_(options.pace, std::min(options.max_chunk, options.batch_tokens), options.max_rows) {}

void StepPlanner::Plan(std::span<const ScheduleRow> rows, std::vector<ScheduleSlice>& batch) {
  const int64_t decode_rows = std::ranges::count(rows, 0, &ScheduleRow::prompt_left);
  const ScheduleLimits limits{options_.batch_tokens, chunks_.NextChunk(decode_rows)};
  ScheduleBatch(options_.policy, rows, limits, turn_, batch);
  planned_ = {};
  for (const ScheduleSlice& slice : batch) {
    const bool decodes = rows[slice.row].prompt_left == 0;
    (decodes ? planned_.decode_rows : planned_.prefill_tokens) += slice.tokens;
  }
  ++turn_.step;
  turn_.prefill += planned_.prefill_tokens > 0;
}

void StepPlanner::OnStep(double seconds) {
  planned_.seconds = seconds;
  chunks_.OnStep(planned_);
}

}  // namespace millrace::engine
