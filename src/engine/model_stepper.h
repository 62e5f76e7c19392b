#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ledger.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/page_pool.h"
#include "engine/step_model.h"
#include "model/checkpoint.h"
#include "model/engram_hash.h"
#include "model/forward.h"
#include "model/layer_plan.h"

namespace millrace::engine {

// The most tokens of one step; scratch grows with it.
inline constexpr int64_t kMaxBatchTokens = 1 << 16;

struct StepperOptions {
  std::optional<int64_t> max_model_len;  // tokens of the longest sequence; nullopt: the config's limit
  int max_num_seqs = 4;                  // sequences that hold state at once
  int64_t max_batch_tokens = 512;        // of one step
  std::optional<int64_t> kv_tokens;      // of all sequences together; nullopt: max_num_seqs x max_model_len
  model::LateLayers late_layers = model::LateLayers::kNeeded;
  model::Numerics numerics = model::Numerics::kReference;
  std::optional<uint64_t> ram_bytes;  // refuse a plan that needs more; nullopt: no limit
};

// One line of a memory plan.
struct PlannedMemory {
  std::string name;
  uint64_t bytes = 0;
};

// The released model as the engine runs it: model::Forward over pages of one pool. A sequence holds one of
// max_num_seqs prepared states and, from its admission to its end, the pages of all tokens it may reach. One
// thread: the engine's (Create may run elsewhere).
class ModelStepper : public StepModel {
 public:
  // What a stepper with these options and its engine will hold, by the names of the ledger's accounts, mapped
  // weights first. `n_threads` of the pool.
  static Result<std::vector<PlannedMemory>> PlanMemory(const model::LayerPlan& plan,
                                                       const StepperOptions& options, int n_threads);

  // `checkpoint` and `pool` outlive the stepper, as does `ledger` (optional). kInvalidArgument, naming the
  // option, its value and what is accepted; kResourceExhausted, listing the plan, when it exceeds ram_bytes.
  static Result<std::unique_ptr<ModelStepper>> Create(const model::Checkpoint& checkpoint,
                                                      model::EngramHash engram, ThreadPool& pool,
                                                      const StepperOptions& options,
                                                      MemoryLedger* ledger = nullptr);
  // Every sequence is gone.
  ~ModelStepper() override;

  // Tokens of the whole page pool.
  int64_t kv_tokens() const;
  // Of these, not reserved by a sequence now.
  int64_t free_kv_tokens() const;

  int64_t vocab_size() const override;
  TokenId eos_token_id() const override;
  int64_t max_model_len() const override { return max_model_len_; }
  int64_t max_batch_tokens() const override;
  Result<std::unique_ptr<StepSequence>> NewSequence(int64_t max_tokens) override;
  void Step(std::span<const StepItem> items, std::span<float> logits) override;

 private:
  struct Slot;
  class Sequence;

  ModelStepper(std::unique_ptr<model::Forward> forward, std::unique_ptr<cache::PagePool> pages,
               int64_t max_model_len, int max_num_seqs, MemoryLedger* ledger);
  void Release(Slot& slot);

  std::unique_ptr<model::Forward> forward_;
  std::unique_ptr<cache::PagePool> pages_;
  int64_t max_model_len_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_slots_;
  std::vector<model::BatchItem> batch_;  // scratch of Step
  MemoryAccount* states_account_ = nullptr;
};

}  // namespace millrace::engine
