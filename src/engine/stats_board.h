#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "engine/busy_rate.h"
#include "engine/request.h"
#include "engine/step_model.h"

namespace millrace::engine {

// Upper bounds of the sizes of steps that are counted apart; larger steps are counted after the last.
inline constexpr std::array<int64_t, 14> kStepTokenBounds = {1,   8,    16,   32,   64,   128,   256,
                                                             512, 1024, 2048, 4096, 8192, 16384, 32768};

// What a step computes.
struct StepShape {
  int64_t sequences = 0;
  int64_t decode_rows = 0;     // sequences that get their next token
  int64_t prefill_tokens = 0;  // of the prompts that are read
  int64_t depth = 0;           // tokens of the longest sequence, with those of this step
};

// A snapshot of counters; every total only grows.
struct EngineStats {
  int running = 0;             // hold model state
  int waiting = 0;             // in the queue, or preempted, or until a reader has read what they share
  int64_t waiting_tokens = 0;  // that these will begin with: prompts, and what the preempted have generated,
                               // without what is read for them
  uint64_t prompt_tokens_total = 0;  // that the model has read
  uint64_t generation_tokens_total = 0;
  uint64_t preemptions_total = 0;
  uint64_t prompt_waits_total = 0;  // for a sequence that read what a prompt began with
  // Tokens that sequences were begun with; of these, what a cache gave at once; and what it held but had to
  // be read again for the window state.
  uint64_t prefix_query_tokens = 0;
  uint64_t prefix_hit_tokens = 0;
  uint64_t prefix_replay_tokens = 0;
  CacheStats cache;
  uint64_t finished_stop = 0;
  uint64_t finished_length = 0;
  uint64_t finished_repetition = 0;
  uint64_t finished_timeout = 0;
  uint64_t finished_cancelled = 0;
  uint64_t finished_error = 0;
  uint64_t steps_total = 0;
  // Steps by their tokens, of prompts and generated: more than the bound before, at most the bound.
  std::array<uint64_t, kStepTokenBounds.size() + 1> steps_by_tokens = {};
  double last_step_seconds = 0;
  double tokens_per_second = 0;  // of the last half minute of steps, of prompts and generated; 0: no step yet
  double mean_answer_tokens = 0;  // of the last answers
  // Since the step that runs now began; 0 when idle. A growing value on a live process is a stuck step.
  double current_step_age_seconds = 0;
  StepShape current_step;  // zeros when idle, and while a step is only being put together
  // Since a step ended, or a request was told its end, or work came to an idle engine; 0 when idle. Small
  // while the engine is busy, however busy it is; growing when nothing moves.
  double seconds_since_progress = 0;
  bool stuck = false;             // that is longer than WatchdogOptions::stuck_after_seconds
  uint64_t slow_steps_total = 0;  // of those that the watchdog has reported
  uint64_t stuck_total = 0;       // times that the engine was found stuck
};

// The counters of one engine: the engine's thread writes, any thread reads and reserves places in the queue.
// Nothing here waits for a step. Any thread.
class StatsBoard {
 public:
  using Clock = std::chrono::steady_clock;

  // Takes a place in the queue for each of `sequences`, or none: when more than `capacity` would wait or run.
  bool TryJoinQueue(int capacity, int64_t prompt_tokens, int sequences = 1);

  // From the queue into a slot, with so many tokens; see EngineStats.
  void OnAdmitted(int64_t tokens, int64_t cached, int64_t replayed);
  void OnPreempted(int64_t tokens);  // from its slot back to wait
  // A request in the queue waits for a sequence that reads `saved` of its tokens; it does no longer.
  void OnWaitsForReader(int64_t saved);
  void OnWaitEnded(int64_t saved);
  void OnLeft(bool held_slot, const FinishEvent& event);
  // The sink of a request that left has been told.
  void OnReported();

  void OnStepBegin();
  void OnStepPlanned(const StepShape& shape);  // after OnStepBegin
  void OnStepEnd();
  void OnCache(const CacheStats& cache);
  void OnPromptTokens(int64_t tokens);
  void OnToken();

  // From the watchdog.
  void OnSlowStep();
  void OnStuck();

  // `stuck` is left false: the board knows no limit.
  EngineStats Snapshot() const;

  // Blocks until every request that joined was reported, or until `deadline`; true when all were.
  bool WaitUntilIdle(std::optional<Clock::time_point> deadline);

 private:
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  EngineStats stats_;   // guarded by mutex_, as is all below
  int unreported_ = 0;  // joined and not yet reported
  std::optional<Clock::time_point> step_began_;
  Clock::time_point progress_at_;    // while there is work
  uint64_t tokens_before_step_ = 0;  // both totals
  BusyRate rate_;
};

}  // namespace millrace::engine
