#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/ledger.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "model/checkpoint.h"
#include "model/engram_hash.h"
#include "model/layer_plan.h"
#include "model/sequence_state.h"

namespace millrace::model {

enum class LogitsWanted : uint8_t { kNone, kLast, kAll };

// The next tokens of one sequence. Positions follow from state->length(). Each state at most once a batch.
struct BatchItem {
  SequenceState* state = nullptr;
  std::span<const TokenId> tokens;
  LogitsWanted logits = LogitsWanted::kLast;
};

// Receives intermediate tensors of the forward pass under the names of shared/golden ("L3.attn_in", ...), for
// tests and `millrace eval --layers`. Rows are the batch's tokens in order (compressed tensors: entries
// completed by this batch). `values` live only during the call. Integer tensors arrive as exact floats.
class LayerTrace {
 public:
  virtual ~LayerTrace() = default;
  virtual void OnTensor(const std::string& name, std::span<const float> values,
                        std::span<const int64_t> shape) = 0;
};

struct ForwardOptions {
  int64_t max_batch_tokens = 512;  // over all items of one call
  int64_t max_model_len = 0;       // tokens of the longest sequence
};

// The text backbone in `reference` numerics: float32 activations, weights decoded exactly
// (shared/spec/v41-text.md, section 1, "plain"). Every token's results are bit-identical however tokens are
// cut into chunks and batched and with any number of threads: no value of one token depends on another token
// of the call, except through the sequence state.
//
// All memory is allocated at construction (ScratchBytes); Run allocates nothing that grows with context.
// One thread calls Run; the pool's threads help.
class Forward {
 public:
  // `checkpoint` and `pool` outlive the object. Computes the engram hashing tables from `engram`.
  Forward(const Checkpoint& checkpoint, EngramHash engram, ThreadPool& pool, ForwardOptions options,
          MemoryLedger* ledger = nullptr);
  ~Forward();

  static uint64_t ScratchBytes(const LayerPlan& plan, const ForwardOptions& options, int n_threads);

  const LayerPlan& plan() const;
  const ForwardOptions& options() const;

  // Appends every item's tokens to its state. The sum of tokens is at most max_batch_tokens, pages are in
  // place. `logits` is [wanted rows, vocab_size] in item order, then position.
  void Run(std::span<const BatchItem> items, std::span<float> logits, LayerTrace* trace = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::model
