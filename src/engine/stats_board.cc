#include "engine/stats_board.h"

#include <algorithm>

#include "base/seconds.h"

namespace millrace::engine {
namespace {

constexpr double kNewAnswerWeight = 0.1;  // in the mean of answers' lengths

}  // namespace

bool StatsBoard::TryJoinQueue(int capacity, int64_t prompt_tokens, int sequences) {
  std::lock_guard lock(mutex_);
  if (stats_.waiting + stats_.running + sequences > capacity) return false;
  stats_.waiting += sequences;
  stats_.waiting_tokens += sequences * prompt_tokens;
  if (unreported_ == 0) progress_at_ = Clock::now();
  unreported_ += sequences;
  return true;
}

void StatsBoard::OnAdmitted(int64_t tokens, int64_t cached, int64_t replayed) {
  std::lock_guard lock(mutex_);
  --stats_.waiting;
  stats_.waiting_tokens -= tokens;
  ++stats_.running;
  stats_.prefix_query_tokens += static_cast<uint64_t>(tokens);
  stats_.prefix_hit_tokens += static_cast<uint64_t>(cached);
  stats_.prefix_replay_tokens += static_cast<uint64_t>(replayed);
}

void StatsBoard::OnPreempted(int64_t tokens) {
  std::lock_guard lock(mutex_);
  stats_.waiting_tokens += tokens;
  ++stats_.waiting;
  --stats_.running;
  ++stats_.preemptions_total;
}

void StatsBoard::OnWaitsForReader(int64_t saved) {
  std::lock_guard lock(mutex_);
  ++stats_.prompt_waits_total;
  stats_.waiting_tokens -= saved;
}

void StatsBoard::OnWaitEnded(int64_t saved) {
  std::lock_guard lock(mutex_);
  stats_.waiting_tokens += saved;
}

void StatsBoard::OnCache(const CacheStats& cache) {
  std::lock_guard lock(mutex_);
  stats_.cache = cache;
}

void StatsBoard::OnLeft(bool held_slot, const FinishEvent& event) {
  std::lock_guard lock(mutex_);
  --(held_slot ? stats_.running : stats_.waiting);
  if (!held_slot) stats_.waiting_tokens -= event.prompt_tokens + event.generated_tokens;
  if (event.generated_tokens > 0) {
    const auto tokens = static_cast<double>(event.generated_tokens);
    const bool first = stats_.mean_answer_tokens == 0;
    stats_.mean_answer_tokens += (first ? 1 : kNewAnswerWeight) * (tokens - stats_.mean_answer_tokens);
  }
  switch (event.reason) {
    case FinishReason::kStop:
      ++stats_.finished_stop;
      return;
    case FinishReason::kLength:
      ++stats_.finished_length;
      return;
    case FinishReason::kRepetition:
      ++stats_.finished_repetition;
      return;
    case FinishReason::kTimeout:
      ++stats_.finished_timeout;
      return;
    case FinishReason::kCancelled:
      ++stats_.finished_cancelled;
      return;
    case FinishReason::kError:
      ++stats_.finished_error;
      return;
  }
}

void StatsBoard::OnReported() {
  std::lock_guard lock(mutex_);
  progress_at_ = Clock::now();
  if (--unreported_ == 0) idle_.notify_all();
}

void StatsBoard::OnStepBegin() {
  std::lock_guard lock(mutex_);
  step_began_ = Clock::now();
  tokens_before_step_ = stats_.prompt_tokens_total + stats_.generation_tokens_total;
}

void StatsBoard::OnStepPlanned(const StepShape& shape) {
  std::lock_guard lock(mutex_);
  stats_.current_step = shape;
}

void StatsBoard::OnStepEnd() {
  std::lock_guard lock(mutex_);
  progress_at_ = Clock::now();
  ++stats_.steps_total;
  const auto tokens =
      static_cast<int64_t>(stats_.prompt_tokens_total + stats_.generation_tokens_total - tokens_before_step_);
  const auto bound = std::ranges::lower_bound(kStepTokenBounds, tokens);
  ++stats_.steps_by_tokens[static_cast<size_t>(bound - kStepTokenBounds.begin())];
  stats_.last_step_seconds = Seconds(progress_at_ - *step_began_);
  rate_.Add(static_cast<double>(tokens), stats_.last_step_seconds);
  stats_.tokens_per_second = rate_.per_second();
  step_began_.reset();
  stats_.current_step = {};
}

void StatsBoard::OnPromptTokens(int64_t tokens) {
  std::lock_guard lock(mutex_);
  stats_.prompt_tokens_total += static_cast<uint64_t>(tokens);
}

void StatsBoard::OnToken() {
  std::lock_guard lock(mutex_);
  ++stats_.generation_tokens_total;
}

void StatsBoard::OnSlowStep() {
  std::lock_guard lock(mutex_);
  ++stats_.slow_steps_total;
}

void StatsBoard::OnStuck() {
  std::lock_guard lock(mutex_);
  ++stats_.stuck_total;
}

EngineStats StatsBoard::Snapshot() const {
  std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  const Clock::time_point now = Clock::now();
  if (step_began_) stats.current_step_age_seconds = Seconds(now - *step_began_);
  if (unreported_ > 0) stats.seconds_since_progress = Seconds(now - progress_at_);
  return stats;
}

bool StatsBoard::WaitUntilIdle(std::optional<Clock::time_point> deadline) {
  std::unique_lock lock(mutex_);
  const auto idle = [this] { return unreported_ == 0; };
  if (deadline) return idle_.wait_until(lock, *deadline, idle);
  idle_.wait(lock, idle);
  return true;
}

}  // namespace millrace::engine
