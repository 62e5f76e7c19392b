#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace millrace::engine {

// One sequence's model state (pages, window rings, ...). Owned by the engine, opaque to it.
class StepSequence {
 public:
  virtual ~StepSequence() = default;
};

struct StepItem {
  StepSequence* sequence = nullptr;
  std::span<const TokenId> tokens;  // the sequence's next tokens, at least one
  bool wants_logits = false;        // of the last of `tokens`
  // The first position of the sequence whose logits are wanted, by this step or a later one: what is not
  // needed for them need not be computed. 0: any.
  int64_t results_from = 0;
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

  // A fresh sequence that will never hold more than `max_tokens` tokens, its memory reserved: a step cannot
  // fail for lack of it. kResourceExhausted when the pool is too full now.
  virtual Result<std::unique_ptr<StepSequence>> NewSequence(int64_t max_tokens) = 0;

  // Appends every item's tokens to its sequence. `logits` is [number of items with wants_logits, vocab_size],
  // row-major, in item order. Each sequence appears once. Results are bit-identical however tokens are
  // grouped.
  virtual void Step(std::span<const StepItem> items, std::span<float> logits) = 0;
};

}  // namespace millrace::engine
