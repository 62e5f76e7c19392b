#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/ledger.h"
#include "base/result.h"
#include "engine/chunk_controller.h"
#include "engine/request.h"
#include "engine/schedule.h"
#include "engine/stats_board.h"
#include "engine/step_model.h"
#include "engine/watchdog.h"

namespace millrace::engine {

// The most sequences an engine runs at once.
inline constexpr int kMaxNumSeqs = 1024;

struct EngineOptions {
  int max_num_seqs = 4;  // >= 1; sequences that hold model state at once
  int max_queue = 256;   // >= 0; requests beyond max_num_seqs; more are refused with kResourceExhausted
  double max_queue_seconds = 0;  // that a request waits for a slot before it ends with kTimeout; 0: any
  int64_t prefill_chunk = 512;   // >= 1; prompt tokens of one step (bounded by StepModel::max_batch_tokens)
  SchedulePolicy schedule_policy = SchedulePolicy::kFair;  // of prompts that are read together
  PaceOptions pace = {};                                   // of reading, while others decode
  // A generation whose last so many tokens only repeat a phrase (RepetitionGuard) ends with kRepetition; 0:
  // never. At least kMinPhraseRepeats otherwise. Requests with ignore_eos ask for a length and are left
  // alone, and so are others before their min_tokens.
  int64_t repetition_limit_tokens = 4096;
  WatchdogOptions watchdog = {};
};

// Bytes for the prompts of requests that wait, one for all choices of a request: as many as there are slots
// may be of full length, and as many as the queue has places of 16,384 tokens in the mean. Longer ones wait
// in smaller numbers.
uint64_t PromptBytes(int64_t max_model_len, const EngineOptions& options);

// Bytes of the tokens of running sequences, prompt and generated: room for a full length in each slot.
uint64_t SequenceTokenBytes(int64_t max_model_len, int max_num_seqs);

// Bytes of an engine's own buffers: for every sequence a row of logits and its token history, and the
// sampler.
uint64_t LogitsAndSamplingBytes(int64_t vocab_size, int max_num_seqs);

// The loop that owns all sequence state, on one thread of its own. Any thread may call Submit, Cancel, stats
// and Drain; the first three send messages and never wait for a step.
//
// Requests are admitted in the order they came, when a slot is free and the model has memory for the tokens
// that they begin with; one that does not fit now waits, and those behind it too. One that begins like a
// prompt which is being read waits for that in its slot; those behind it have the other slots (loop.h). One
// that does not fit while nothing else runs never will: it ends with kError. A sequence that cannot grow
// makes the latest admitted give up its memory and wait; that one goes on later where it was, with the same
// tokens (loop.h).
//
// What a sink or the model throws is caught here and ends the requests concerned with kError.
class Engine {
 public:
  // Opens the accounts "logits and sampling", "sequence tokens" and "prompts" in `ledger` (optional, outlives
  // the engine).
  Engine(std::unique_ptr<StepModel> model, EngineOptions options, MemoryLedger* ledger = nullptr);
  // Cancels what is left and joins.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int64_t max_model_len() const;
  // Sequences that may run and wait together.
  int capacity() const;
  int64_t vocab_size() const;
  // What the prompts of all that waits may take together, PromptBytes: one request with more never gets in.
  uint64_t prompt_bytes() const;

  // Queues a request; `sink` lives until after OnFinish. Errors at once: prompt empty or too long for the
  // model (kInvalidArgument), a token id outside the vocabulary, sampling parameters out of range
  // (kInvalidArgument, naming field and value), queue or its memory full (kResourceExhausted), draining
  // (kUnavailable).
  // After an error the sink is never called.
  Result<SeqId> Submit(GenerationRequest request, std::shared_ptr<TokenSink> sink);
  // As many sequences of one request as there are `sinks`, at least one: all or none. They share the prompt;
  // sequence i has the seed of the request + i. Ids in the order of the sinks.
  Result<std::vector<SeqId>> SubmitChoices(GenerationRequest request,
                                           std::span<const std::shared_ptr<TokenSink>> sinks);

  // The sequence leaves its slot within one step and its sink gets OnFinish(kCancelled). Unknown or finished
  // ids are ignored.
  void Cancel(SeqId id);

  EngineStats stats() const;

  // Refuses new work, lets running and waiting work finish until `deadline`, then cancels the rest. Returns
  // when every sink has got its OnFinish: after the deadline that takes at most the step that is running.
  void Drain(std::chrono::steady_clock::time_point deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::engine
