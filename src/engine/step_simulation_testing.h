#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/step_planner.h"

// For tests of the schedule: a clock that only a model of a machine moves, so that seconds are exact.

namespace millrace::engine {

// Seconds of a step, without its depth: a part that every step pays, one for each sequence that decodes and
// one for each token of a prompt, which is larger in small chunks and grows with depth.
struct MachineModel {
  double base = 0.020;
  double decode_row = 0.002;
  double prefill_token = 0.0005;
  double small_chunk_extra = 0.5;  // of prefill_token, for a chunk of one token; falls with its square root
  double depth_doubles_at = 1e9;   // the depth at which a token of a prompt takes twice as long
  // What neighbours do: each step's seconds are multiplied by it.
  std::function<double(int64_t step)> slowdown = [](int64_t) { return 1.0; };

  double Seconds(const StepCost& cost, int64_t depth, int64_t step) const;
};

inline double MachineModel::Seconds(const StepCost& cost, int64_t depth, int64_t step) const {
  const auto tokens = static_cast<double>(cost.prefill_tokens);
  double seconds = base + decode_row * static_cast<double>(cost.decode_rows);
  if (tokens > 0) {
    const double small = 1 + small_chunk_extra / std::sqrt(tokens);
    seconds += tokens * prefill_token * small * (1 + static_cast<double>(depth) / depth_doubles_at);
  }
  return seconds * slowdown(step);
}

// Streams that decode for ever beside prompts that arrive, all through one StepPlanner.
class StepSimulation {
 public:
  struct Sequence {
    double arrival = 0;
    int64_t prompt_left = 0;
    bool decodes_after = true;  // else it leaves at its first token
    // Filled by the run.
    std::optional<double> first_token = {};
    double last_token = 0;
    double longest_gap = 0;
    int64_t tokens = 0;

    double Rate() const { return static_cast<double>(tokens - 1) / (last_token - *first_token); }
    double FirstTokenAfter() const { return *first_token - arrival; }
  };

  StepSimulation(MachineModel machine, const PlannerOptions& options)
      : machine_(std::move(machine)), planner_(options) {}

  // Index of the sequence. `arrival` in seconds, not before those added already.
  size_t Add(double arrival, int64_t prompt, bool decodes_after = true) {
    sequences_.push_back({.arrival = arrival, .prompt_left = prompt, .decodes_after = decodes_after});
    return sequences_.size() - 1;
  }

  // Steps until `until` holds, at most `max_steps`; false when it never did.
  bool Run(const std::function<bool()>& until, int64_t max_steps = 1'000'000) {
    for (int64_t i = 0; i < max_steps && !until(); ++i) Step();
    return until();
  }
  bool RunUntilPromptsAreRead() {
    return Run([this] {
      return std::ranges::all_of(sequences_, [](const Sequence& s) { return s.first_token.has_value(); });
    });
  }

  // Forgets what streams have been given, so that what follows is measured alone.
  void MeasureFromHere() {
    for (Sequence& sequence : sequences_) {
      if (!sequence.first_token) continue;
      sequence.first_token = sequence.last_token;
      sequence.longest_gap = 0;
      sequence.tokens = 1;
    }
  }

  double now() const { return now_; }
  int64_t steps() const { return steps_; }
  const Sequence& at(size_t i) const { return sequences_[i]; }
  // Of each step so far.
  const std::vector<StepCost>& costs() const { return costs_; }

 private:
  bool Runs(const Sequence& sequence) const {
    return sequence.arrival <= now_ && (!sequence.first_token || sequence.decodes_after);
  }

  void Step() {
    std::vector<size_t> running;
    std::vector<ScheduleRow> rows;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (!Runs(sequences_[i])) continue;
      running.push_back(i);
      rows.push_back({.prompt_left = sequences_[i].prompt_left, .arrival = i});
    }
    if (rows.empty()) {
      now_ = NextArrival();
      return;
    }
    std::vector<ScheduleSlice> batch;
    planner_.Plan(rows, batch);
    int64_t depth = 0;
    for (const ScheduleSlice& slice : batch) depth = std::max(depth, done_[running[slice.row]]);
    StepCost cost{planner_.decode_rows(), planner_.prefill_tokens(), 0};
    cost.seconds = machine_.Seconds(cost, depth, steps_++);
    now_ += cost.seconds;
    planner_.OnStep(cost.seconds);
    costs_.push_back(cost);
    for (const ScheduleSlice& slice : batch) Deliver(running[slice.row], slice.tokens);
  }

  void Deliver(size_t index, int64_t tokens) {
    Sequence& sequence = sequences_[index];
    if (sequence.prompt_left > 0) {
      sequence.prompt_left -= tokens;
      done_[index] += tokens;
      if (sequence.prompt_left > 0) return;
    }
    if (!sequence.first_token) {
      sequence.first_token = now_;
    } else {
      sequence.longest_gap = std::max(sequence.longest_gap, now_ - sequence.last_token);
    }
    sequence.last_token = now_;
    ++sequence.tokens;
  }

  double NextArrival() const {
    double next = 1e300;
    for (const Sequence& sequence : sequences_)
      if (sequence.arrival > now_) next = std::min(next, sequence.arrival);
    return next;
  }

  const MachineModel machine_;
  StepPlanner planner_;
  std::vector<Sequence> sequences_;
  std::vector<int64_t> done_ = std::vector<int64_t>(1024);
  std::vector<StepCost> costs_;
  double now_ = 0;
  int64_t steps_ = 0;
};

}  // namespace millrace::engine
