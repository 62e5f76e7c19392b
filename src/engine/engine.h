#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/result.h"
#include "engine/request.h"
#include "engine/step_model.h"

namespace millrace::engine {

struct EngineOptions {
  int max_num_seqs = 4;         // sequences that hold model state at once
  int max_queue = 256;          // requests waiting for a slot; more are refused with kResourceExhausted
  int64_t prefill_chunk = 512;  // prompt tokens of one step (bounded by StepModel::max_batch_tokens)
};

// A snapshot of counters; every total only grows.
struct EngineStats {
  int running = 0;  // hold a slot
  int waiting = 0;  // in the queue
  uint64_t prompt_tokens_total = 0;
  uint64_t generation_tokens_total = 0;
  uint64_t finished_stop = 0;
  uint64_t finished_length = 0;
  uint64_t finished_cancelled = 0;
  uint64_t finished_error = 0;
  uint64_t steps_total = 0;
  double last_step_seconds = 0;
  // Since the step that runs now began; 0 when idle. A growing value on a live process is a stuck step.
  double current_step_age_seconds = 0;
};

// The loop that owns all sequence state, on one thread of its own. Submit, Cancel, Stats and Drain may be
// called from any thread; they send messages and never wait for a step.
class Engine {
 public:
  Engine(std::unique_ptr<StepModel> model, EngineOptions options);
  // Cancels what is left and joins.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int64_t max_model_len() const;
  int64_t vocab_size() const;

  // Queues a request; `sink` lives until after OnFinish. Errors at once: prompt empty or too long for the
  // model (kInvalidArgument), a token id outside the vocabulary, sampling parameters out of range
  // (kInvalidArgument, naming field and value), queue full (kResourceExhausted), draining (kUnavailable).
  // After an error the sink is never called.
  Result<SeqId> Submit(GenerationRequest request, std::shared_ptr<TokenSink> sink);

  // The sequence leaves its slot within one step and its sink gets OnFinish(kCancelled). Unknown or finished
  // ids are ignored.
  void Cancel(SeqId id);

  EngineStats stats() const;

  // Refuses new work, lets running and waiting work finish until `deadline`, then cancels the rest. Returns
  // when idle.
  void Drain(std::chrono::steady_clock::time_point deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::engine
