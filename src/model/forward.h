#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/ledger.h"
#include "base/planned_memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "model/checkpoint.h"
#include "model/engram_hash.h"
#include "model/layer_plan.h"
#include "model/sequence_state.h"

namespace millrace::model {

enum class LogitsWanted : uint8_t { kNone, kLast, kAll };

// A copy of a sequence's window rings as they are behind its first `length` tokens, for a prefix cache.
struct TailRequest {
  int64_t length = 0;
  std::span<std::byte> rings;  // [WindowLayout::bytes]
};

// The next tokens of one sequence. Positions follow from state->length(). Each state at most once a batch.
struct BatchItem {
  SequenceState* state = nullptr;
  std::span<const TokenId> tokens;
  LogitsWanted logits = LogitsWanted::kLast;
  // The first position whose results anybody will want, of these tokens or of later ones: for a prompt that
  // is read in pieces, the prompt's last position. Results are logits and all that decoding on from there
  // needs. Late layers leave out what does not reach them; nothing that is asked for changes by a bit. Wanted
  // logits count as wanted results whatever stands here. 0: every position. A state that is to be exact at a
  // length n inside a prompt takes n for the tokens before it.
  int64_t results_from = 0;
  // Tails to take on the way: their lengths lie behind the item's first token and at most behind its last.
  // The rings of a tail are exact in all layers when its length is at least the state's results_from() after
  // the call, else in the layers up to LayerPlan::first_late_layer; the others are left as they were.
  std::span<const TailRequest> tails = {};
};

// Watches (and, for tests of one layer at a time, feeds) the forward pass. Rows are the batch's tokens in
// order; for compressed tensors (latent, index_k, compressed_kv) the entries that this batch completed. Names
// are those of the goldens: "L3.attn_in", "hash_ids", ... `values` live only during the call. A late layer
// shows the tokens it has not left out. Called by the thread that runs the pass.
class LayerTrace {
 public:
  virtual ~LayerTrace() = default;
  virtual void OnTensor(const std::string& name, std::span<const float> values,
                        std::span<const int64_t> shape) = 0;
  virtual void OnIntegers(const std::string& name, std::span<const int64_t> values,
                          std::span<const int64_t> shape) = 0;
  // May replace what layer `layer` starts from: streams [tokens, hc_mult, hidden] and pre [tokens, hc_mult].
  virtual void OnLayerInput(int layer, std::span<float> streams, std::span<float> pre) {
    (void)layer, (void)streams, (void)pre;
  }
};

// How products are computed. Every choice keeps results independent of batch, chunks, threads and instruction
// set.
enum class Numerics : uint8_t {
  kReference,  // float32 activations throughout (shared/spec/v41-text.md, section 1, "plain")
  // Activations of the routed experts rounded to 8 bits in blocks of 32 (kernels/matmul_int8.h), those of fp8
  // matrices but wq_a and wkv to bfloat16 (kernels/matmul_rounded.h); all else as kReference.
  kFast,
};

// Which tokens the late layers (LayerPlan::first_late_layer) run for.
enum class LateLayers : uint8_t {
  kNeeded,  // those that wanted results depend on
  kAll,     // all: for comparison
};

struct ForwardOptions {
  int64_t max_batch_tokens = 512;  // over all items of one call
  int64_t max_batch_items = 16;
  LateLayers late_layers = LateLayers::kNeeded;
  Numerics numerics = Numerics::kReference;
  int64_t page_tokens = kPageTokens;  // a power of two, at least kMinPageTokens
};

// The text backbone; weights are decoded exactly, activations are float32 but for what
// ForwardOptions::numerics rounds. Every token's results are bit-identical however tokens are cut into chunks
// and batched and with any number of threads: no value of one token depends on another token of the call
// except through its sequence's state.
//
// All memory is allocated at construction (PlanScratch); Run allocates nothing (except for a trace).
// One thread calls Run; the pool's threads help.
class Forward {
 public:
  // `checkpoint` and `pool` outlive the object. kMismatch when the config or the hash tables do not fit the
  // model.
  static Result<std::unique_ptr<Forward>> Create(const Checkpoint& checkpoint, EngramHash engram,
                                                 ThreadPool& pool, ForwardOptions options,
                                                 MemoryLedger* ledger = nullptr);
  ~Forward();
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;

  // The scratch that a Forward with these options holds, by the names of its accounts.
  static std::vector<PlannedMemory> PlanScratch(const LayerPlan& plan, const ForwardOptions& options,
                                                int n_threads);

  const LayerPlan& plan() const;
  const PageLayout& page_layout() const;
  const ForwardOptions& options() const;

  // Puts `state`, whose pages hold the entries of all of `tokens` (whole pages), behind the first `length` of
  // them. `tail` holds the rings there, or is empty; `results_from` as for BatchItem. See
  // LayerPlan::ReplayStart for what is exact then.
  void Resume(SequenceState& state, std::span<const TokenId> tokens, int64_t length, int64_t results_from,
              std::span<const std::byte> tail) const;

  // Appends every item's tokens to its state. At most max_batch_items items with together at most
  // max_batch_tokens tokens, each item at least one; token ids are inside the vocabulary; pages for all
  // tokens are in place; no results are wanted that the state cannot give (SequenceState::CanGive). `logits`
  // is [wanted rows, vocab_size], in item order, then position.
  // Afterwards a state whose results_from() is at most its length is exact in full. Otherwise (a prompt that
  // goes on) it is so but for the late layers' rings, which only the rest of the prompt can continue.
  void Run(std::span<const BatchItem> items, std::span<float> logits, LayerTrace* trace = nullptr);

 private:
  struct Impl;
  explicit Forward(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::model
