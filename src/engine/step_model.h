#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace millrace::engine {

// What the caches of a model hold, in tokens; totals only grow.
struct CacheStats {
  int64_t capacity_tokens = 0;  // 0: the model does not say
  int64_t in_use_tokens = 0;    // held by sequences
  int64_t reusable_tokens = 0;  // held by nobody, kept for prompts that begin alike
  int64_t tails = 0;            // places to go on from
  uint64_t evicted_tokens = 0;
  uint64_t evicted_tails = 0;
};

// One sequence's model state (pages, window rings, ...). Owned by the engine, opaque to it.
class StepSequence {
 public:
  virtual ~StepSequence() = default;
};

struct StepItem {
  StepSequence* sequence = nullptr;
  std::span<const TokenId> tokens;  // the sequence's next tokens, at least one
  bool wants_logits = false;        // of the last of `tokens`
};

// A sequence that has just begun, and how much of it is there already.
struct StartedSequence {
  std::unique_ptr<StepSequence> sequence;
  int64_t length = 0;           // tokens that it holds; less than it was begun with
  int64_t replayed_tokens = 0;  // of those it does not hold, in a cache all the same, but to be read again
};

// What a sequence gains that begins only when another one has read what their prompts share.
struct SharedReading {
  int64_t length = 0;  // tokens that the other has to have read
  int64_t saved = 0;   // tokens that are computed when it begins now and not when it begins then
  bool asks = false;   // the other one has to leave something behind for it: LeaveFor
};

// What the engine needs of a model: run a batch, give logits. ModelStepper (model_stepper.h) is the real one;
// tests use scripted ones. One thread: the engine's.
class StepModel {
 public:
  virtual ~StepModel() = default;

  virtual int64_t vocab_size() const = 0;
  virtual TokenId eos_token_id() const = 0;
  // The longest sequence it can hold, prompt and generated tokens together.
  virtual int64_t max_model_len() const = 0;
  // The most tokens of one Step, over all items.
  virtual int64_t max_batch_tokens() const = 0;

  // A sequence that begins with `tokens`, at least one and at most max_model_len, none of whose logits are
  // wanted before those of the last. What a cache holds of them it has at once; the steps give it the others.
  // Memory for all of them is reserved. kResourceExhausted when the pool is too full now, or so full that
  // those who run could not grow.
  virtual Result<StartedSequence> NewSequence(std::span<const TokenId> tokens) = 0;
  // Reserves memory for the first `length` tokens of a sequence, at most max_model_len: a step within them
  // cannot fail for lack of it. kResourceExhausted when other sequences hold all there is.
  virtual Status Reserve(StepSequence& sequence, int64_t length) = 0;

  // What a sequence of `tokens` (see NewSequence) gains by waiting for `reader`, whose first `common` tokens
  // are the same: at least a page, or nullopt.
  virtual std::optional<SharedReading> WorthWaiting(const StepSequence& /*reader*/,
                                                    std::span<const TokenId> /*tokens*/,
                                                    int64_t /*common*/) const noexcept {
    return std::nullopt;
  }
  // A sequence of `n_tokens` waits until `reader` has read `length` tokens, as WorthWaiting has said with
  // `asks`: `reader` leaves behind what it takes to begin there, unless ForgetAsked comes first.
  virtual void LeaveFor(StepSequence& /*reader*/, int64_t /*n_tokens*/, int64_t /*length*/) noexcept {}
  // `reader` has to leave nothing any more of what LeaveFor has asked it for. Who still waits asks again,
  // before the next step and before WorthWaiting: it gets what it was promised.
  virtual void ForgetAsked(StepSequence& /*reader*/) noexcept {}

  // Appends every item's tokens to its sequence, within what is reserved. `logits` is [number of items with
  // wants_logits, vocab_size], row-major, in item order. Each sequence appears once. Results are
  // bit-identical however tokens are grouped.
  virtual void Step(std::span<const StepItem> items, std::span<float> logits) = 0;

  virtual CacheStats cache_stats() const noexcept { return {}; }
};

}  // namespace millrace::engine
