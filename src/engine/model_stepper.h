#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ledger.h"
#include "base/planned_memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/page_pool.h"
#include "cache/prefix_tree.h"
#include "engine/step_model.h"
#include "model/checkpoint.h"
#include "model/engram_hash.h"
#include "model/forward.h"
#include "model/layer_plan.h"

namespace millrace::engine {

// The most tokens of one step; scratch grows with it.
inline constexpr int64_t kMaxBatchTokens = 1 << 16;
inline constexpr int kMaxPrefixTails = 1 << 20;

struct StepperOptions {
  std::optional<int64_t> max_model_len =
      std::nullopt;                // tokens of the longest sequence; nullopt: the config's limit
  int max_num_seqs = 4;            // sequences that hold state at once
  int64_t max_batch_tokens = 512;  // of one step
  std::optional<int64_t> kv_tokens =
      std::nullopt;  // of all sequences together; nullopt: max_num_seqs x max_model_len
  model::LateLayers late_layers = model::LateLayers::kNeeded;
  model::Numerics numerics = model::Numerics::kReference;
  bool prefix_caching = true;                      // false: sequences share nothing and leave nothing behind
  std::optional<int> prefix_tails = std::nullopt;  // slots; nullopt: by the number of sequences and pages
  int64_t page_tokens = model::kPageTokens;        // others for tests, as is the next
  int64_t early_tail_pages = 16;                   // between the tails inside a long prompt; >= 1
  model::LayerTrace* trace = nullptr;  // of every step, outlives the stepper; for tests, as it allocates
};

// The released model as the engine runs it: model::Forward over pages of one pool. A sequence holds one of
// max_num_seqs prepared states and the pages of the tokens it has; it gets more as it grows. Full pages go
// into a prefix tree at once, where sequences that begin alike share them and find them when it is gone.
//
// A sequence begins behind the deepest of its cached pages that has a tail, or, where that leaves less to
// read, a bounded replay before its last cached page (LayerPlan::ReplayStart): the same bits either way.
// Tails are taken at the last page boundaries of what a sequence begins with, at those that its generation
// passes (the latest two are kept), every StepperOptions::early_tail_pages of a long prompt, and where
// sequences wait to begin behind one that reads (LeaveFor).
//
// One thread: the engine's (Create may run elsewhere).
class ModelStepper : public StepModel {
 public:
  // What a stepper with these options and its engine will hold, by the names of the ledger's accounts; what
  // the checkpoint takes is model::PlanCheckpoint. `n_threads` of the pool.
  static Result<std::vector<PlannedMemory>> PlanMemory(const model::LayerPlan& plan,
                                                       const StepperOptions& options, int n_threads);

  // `checkpoint` and `pool` outlive the stepper, as does `ledger` (optional). kInvalidArgument, naming the
  // option, its value and what is accepted; kResourceExhausted when the system refuses the memory.
  static Result<std::unique_ptr<ModelStepper>> Create(const model::Checkpoint& checkpoint,
                                                      model::EngramHash engram, ThreadPool& pool,
                                                      const StepperOptions& options,
                                                      MemoryLedger* ledger = nullptr);
  // Every sequence is gone.
  ~ModelStepper() override;

  // How many of the last page boundaries of a prompt get a tail: an edit of 300 tokens at its end leaves one.
  static constexpr int64_t kPromptTails = 3;

  // Tokens of the whole page pool.
  int64_t kv_tokens() const;
  // Of these, not held by a sequence now.
  int64_t free_kv_tokens() const;
  // Forgets what no sequence holds.
  void ClearCache() { tree_->Clear(); }
  // Whether all counts of the cache agree; for tests.
  Status CheckCache() const;

  int64_t vocab_size() const override;
  TokenId eos_token_id() const override;
  int64_t max_model_len() const override { return max_model_len_; }
  int64_t max_batch_tokens() const override;
  Result<StartedSequence> NewSequence(std::span<const TokenId> tokens) override;
  Status Reserve(StepSequence& sequence, int64_t length) override;
  std::optional<SharedReading> WorthWaiting(const StepSequence& reader, std::span<const TokenId> tokens,
                                            int64_t common) const noexcept override;
  void LeaveFor(StepSequence& reader, int64_t n_tokens, int64_t length) noexcept override;
  void ForgetAsked(StepSequence& reader) noexcept override;
  void Step(std::span<const StepItem> items, std::span<float> logits) override;
  CacheStats cache_stats() const noexcept override;

 private:
  struct AskedTail;
  struct Slot;
  class Sequence;

  ModelStepper(std::unique_ptr<model::Forward> forward, std::unique_ptr<cache::PagePool> pages,
               std::unique_ptr<cache::PrefixTree> tree, int64_t max_model_len, const StepperOptions& options);
  // Where a sequence whose first pages are a path begins, and from where on its results are exact.
  struct Beginning {
    int64_t length = 0;
    int64_t results_from = 0;
    std::optional<PageId> tail = std::nullopt;  // the node behind which its rings are
  };
  Beginning ChooseBeginning(int64_t n_tokens, std::span<const PageId> path) const;
  bool HasFullTail(PageId node) const;
  // The first position whose results a sequence of `n_tokens` wants that begins with `shared` tokens of the
  // tree: the first page boundary of the prompt's last ones, from there on, that has no full tail yet, or the
  // last token. `full_tail`: `shared` has one.
  int64_t WantedFrom(int64_t n_tokens, int64_t shared, bool full_tail) const;
  // The tail that a sequence of `n_tokens` can begin with behind the first `length`, as far as `slot` can
  // still leave it.
  std::optional<cache::TailKind> TailToBeginWith(const Slot& slot, int64_t n_tokens, int64_t length) const;
  std::optional<cache::TailKind> WantedTail(const Slot& slot, int64_t length) const;
  void PlanTails(Slot& slot, int64_t end);
  // After a step: full pages into the tree, tails to their pages.
  void KeepPages(Slot& slot, std::span<const TokenId> tokens, int64_t start);
  void KeepTails(Slot& slot);
  void AddPage(Slot& slot, PageId page);
  void Release(Slot& slot);

  std::unique_ptr<model::Forward> forward_;
  std::unique_ptr<cache::PagePool> pages_;
  std::unique_ptr<cache::PrefixTree> tree_;
  int64_t max_model_len_;
  int64_t page_tokens_;
  int64_t early_tail_tokens_;
  bool prefix_caching_;
  model::LayerTrace* trace_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_slots_;
  std::vector<model::BatchItem> batch_;     // scratch of Step
  std::vector<PageId> path_;                // scratch of NewSequence
  mutable std::vector<PageId> other_path_;  // scratch of WorthWaiting
  MemoryAccount* states_account_ = nullptr;
};

}  // namespace millrace::engine
