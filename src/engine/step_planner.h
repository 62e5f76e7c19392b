#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/chunk_controller.h"
#include "engine/schedule.h"

namespace millrace::engine {

struct PlannerOptions {
  SchedulePolicy policy = SchedulePolicy::kFair;
  int64_t batch_tokens = 1;  // of one step, decode and prefill together; >= 1
  int64_t max_chunk = 1;     // tokens of prompts in one step; >= 1
  int max_rows = 1;
  PaceOptions pace = {};
};

// What each step computes: the policy, and the chunk that the last steps' times allow. Knows rows and
// seconds, no sequences and no clock. One thread.
class StepPlanner {
 public:
  explicit StepPlanner(const PlannerOptions& options);

  // Fills `batch` with the next step's slices, as ScheduleBatch does.
  void Plan(std::span<const ScheduleRow> rows, std::vector<ScheduleSlice>& batch);

  // The step planned last has run.
  void OnStep(double seconds);

  // Of the step planned last.
  int64_t decode_rows() const { return planned_.decode_rows; }
  int64_t prefill_tokens() const { return planned_.prefill_tokens; }

 private:
  const PlannerOptions options_;
  ChunkController chunks_;
  ScheduleTurn turn_;
  StepCost planned_;  // without its seconds
};

}  // namespace millrace::engine
