#include "engine/model_stepper.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "engine/engine.h"
#include "model/catalogue.h"
#include "model/sequence_state.h"

namespace millrace::engine {
namespace {

using model::kPageTokens;

int64_t PagesFor(int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

// The options with every default filled in.
struct Sizes {
  int64_t max_model_len = 0;
  uint32_t n_pages = 0;
  model::ForwardOptions forward;
};

Error OutOfRange(std::string_view option, int64_t value, std::string_view accepted) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("{} is {}; it must be {}", option, value, accepted));
}

Result<Sizes> ResolveSizes(const formats::ModelConfig& config, const StepperOptions& options) {
  const int64_t limit = config.max_position_embeddings;
  int64_t max_model_len = options.max_model_len.value_or(limit);
  if (max_model_len < 2 || max_model_len > limit) {
    return OutOfRange("max-model-len", max_model_len,
                      fmt::format("from 2 to {}, the checkpoint's max_position_embeddings", limit));
  }
  if (options.max_num_seqs < 1 || options.max_num_seqs > kMaxNumSeqs) {
    return OutOfRange("max-num-seqs", options.max_num_seqs, fmt::format("from 1 to {}", kMaxNumSeqs));
  }
  if (options.max_batch_tokens < 1 || options.max_batch_tokens > kMaxBatchTokens) {
    return OutOfRange("max-num-batched-tokens", options.max_batch_tokens,
                      fmt::format("from 1 to {}", kMaxBatchTokens));
  }
  // Whole pages for every sequence: the last page of each may be partly used.
  const int64_t n_pages =
      options.kv_tokens ? PagesFor(*options.kv_tokens) : PagesFor(max_model_len) * options.max_num_seqs;
  if (n_pages < 1 || n_pages > std::numeric_limits<uint32_t>::max()) {
    return OutOfRange("max-total-tokens", options.kv_tokens.value_or(n_pages * kPageTokens),
                      fmt::format("at least 1 and at most 2^32 pages of {} tokens", kPageTokens));
  }
  // A sequence reserves its pages at admission: one longer than the pool would never be admitted.
  max_model_len = std::min(max_model_len, n_pages * kPageTokens);
  return Sizes{max_model_len,
               static_cast<uint32_t>(n_pages),
               {.max_batch_tokens = options.max_batch_tokens,
                .max_batch_items = std::min<int64_t>(options.max_num_seqs, options.max_batch_tokens),
                .late_layers = options.late_layers,
                .numerics = options.numerics}};
}

uint64_t BackboneBytes(const formats::ModelConfig& config) {
  uint64_t bytes = 0;
  for (const model::TensorSpec& tensor : model::BuildCatalogue(config)) {
    if (tensor.component == model::Component::kBackbone) bytes += tensor.bytes();
  }
  return bytes;
}

Status CheckBudget(const std::vector<PlannedMemory>& plan, uint64_t ram_bytes) {
  uint64_t total = 0;
  for (const PlannedMemory& line : plan) total += line.bytes;
  if (total <= ram_bytes) return {};
  std::string message =
      fmt::format("the plan needs {} and the RAM budget is {}:", HumanBytes(total), HumanBytes(ram_bytes));
  for (const PlannedMemory& line : plan)
    message += fmt::format("\n  {:<20} {:>12}", line.name, HumanBytes(line.bytes));
  message += "\nlower --max-model-len, --max-num-seqs or --max-num-batched-tokens, or raise the budget";
  return Error(ErrorCode::kResourceExhausted, std::move(message));
}

}  // namespace

// One prepared sequence state and the pages it holds now.
struct ModelStepper::Slot {
  explicit Slot(const model::LayerPlan& plan) : state(plan) {}

  model::SequenceState state;
  std::vector<PageId> pages;
};

class ModelStepper::Sequence : public StepSequence {
 public:
  Sequence(ModelStepper& stepper, Slot& slot) : stepper_(stepper), slot_(slot) {}
  ~Sequence() override { stepper_.Release(slot_); }

  Slot& slot() { return slot_; }

 private:
  ModelStepper& stepper_;
  Slot& slot_;
};

Result<std::vector<PlannedMemory>> ModelStepper::PlanMemory(const model::LayerPlan& plan,
                                                            const StepperOptions& options, int n_threads) {
  MILLRACE_ASSIGN_OR_RETURN(const Sizes sizes, ResolveSizes(plan.config, options));
  const auto n_seqs = static_cast<uint64_t>(options.max_num_seqs);
  const auto page_tables =
      n_seqs * static_cast<uint64_t>(PagesFor(sizes.max_model_len)) * (sizeof(PageId) + sizeof(std::byte*));
  const int64_t vocab_size = plan.config.vocab_size;
  return std::vector<PlannedMemory>{
      {"weights (mapped)", BackboneBytes(plan.config)},
      {"kv pages", cache::PagePool::BytesFor(model::PageLayout(plan).page_bytes, sizes.n_pages)},
      {"window states", n_seqs * model::SequenceState::BytesFor(plan) + page_tables},
      {"forward scratch", model::Forward::ScratchBytes(plan, sizes.forward, n_threads)},
      {"logits and sampling", LogitsAndSamplingBytes(vocab_size, options.max_num_seqs)},
  };
}

Result<std::unique_ptr<ModelStepper>> ModelStepper::Create(const model::Checkpoint& checkpoint,
                                                           model::EngramHash engram, ThreadPool& pool,
                                                           const StepperOptions& options,
                                                           MemoryLedger* ledger) {
  MILLRACE_ASSIGN_OR_RETURN(const Sizes sizes, ResolveSizes(checkpoint.config(), options));
  MILLRACE_ASSIGN_OR_RETURN(const model::LayerPlan plan, model::LayerPlan::Build(checkpoint.config()));
  if (options.ram_bytes) {
    MILLRACE_ASSIGN_OR_RETURN(const auto memory, PlanMemory(plan, options, pool.size()));
    MILLRACE_RETURN_IF_ERROR(CheckBudget(memory, *options.ram_bytes));
  }
  MILLRACE_ASSIGN_OR_RETURN(
      auto forward, model::Forward::Create(checkpoint, std::move(engram), pool, sizes.forward, ledger));
  MILLRACE_ASSIGN_OR_RETURN(
      auto pages, cache::PagePool::Create(forward->page_layout().page_bytes, sizes.n_pages, ledger));
  return std::unique_ptr<ModelStepper>(new ModelStepper(std::move(forward), std::move(pages),
                                                        sizes.max_model_len, options.max_num_seqs, ledger));
}

ModelStepper::ModelStepper(std::unique_ptr<model::Forward> forward, std::unique_ptr<cache::PagePool> pages,
                           int64_t max_model_len, int max_num_seqs, MemoryLedger* ledger)
    : forward_(std::move(forward)), pages_(std::move(pages)), max_model_len_(max_model_len) {
  const auto max_pages = static_cast<size_t>(PagesFor(max_model_len));
  for (int i = 0; i < max_num_seqs; ++i) {
    Slot& slot = *slots_.emplace_back(std::make_unique<Slot>(forward_->plan()));
    slot.pages.reserve(max_pages);
    slot.state.pages.reserve(max_pages);
    free_slots_.push_back(&slot);
  }
  batch_.reserve(slots_.size());
  if (ledger == nullptr) return;
  const uint64_t bytes = slots_.size() * (model::SequenceState::BytesFor(forward_->plan()) +
                                          max_pages * (sizeof(PageId) + sizeof(std::byte*)));
  states_account_ = &ledger->Open("window states", bytes);
  states_account_->Add(bytes);
}

ModelStepper::~ModelStepper() {
  MILLRACE_CHECK(free_slots_.size() == slots_.size(), "a sequence outlives its model");
  if (states_account_ != nullptr) states_account_->Remove(states_account_->live_bytes());
}

int64_t ModelStepper::kv_tokens() const {
  return int64_t{pages_->n_pages()} * kPageTokens;
}

int64_t ModelStepper::free_kv_tokens() const {
  return int64_t{pages_->free_pages()} * kPageTokens;
}

int64_t ModelStepper::vocab_size() const {
  return forward_->plan().config.vocab_size;
}

TokenId ModelStepper::eos_token_id() const {
  return forward_->plan().config.eos_token_id;
}

int64_t ModelStepper::max_batch_tokens() const {
  return forward_->options().max_batch_tokens;
}

Result<std::unique_ptr<StepSequence>> ModelStepper::NewSequence(int64_t max_tokens) {
  MILLRACE_CHECK(max_tokens >= 1 && max_tokens <= max_model_len_, "a sequence longer than the model's limit");
  if (free_slots_.empty()) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("all {} sequence states are in use (--max-num-seqs)", slots_.size()));
  }
  Slot& slot = *free_slots_.back();
  if (const Status got = pages_->AllocateMany(static_cast<uint32_t>(PagesFor(max_tokens)), slot.pages);
      !got.ok()) {
    return got.error().In(fmt::format("KV memory for a sequence of {} tokens", max_tokens));
  }
  free_slots_.pop_back();
  for (PageId page : slot.pages) slot.state.pages.push_back(pages_->Data(page));
  return std::unique_ptr<StepSequence>(std::make_unique<Sequence>(*this, slot));
}

void ModelStepper::Release(Slot& slot) {
  for (PageId page : slot.pages) pages_->Unref(page);
  slot.pages.clear();
  slot.state.pages.clear();
  slot.state.Reset();
  free_slots_.push_back(&slot);
}

void ModelStepper::Step(std::span<const StepItem> items, std::span<float> logits) {
  batch_.clear();
  for (const StepItem& item : items) {
    Slot& slot = static_cast<Sequence*>(item.sequence)->slot();
    const int64_t length = slot.state.length() + static_cast<int64_t>(item.tokens.size());
    MILLRACE_CHECK(length <= static_cast<int64_t>(slot.pages.size()) * kPageTokens,
                   "a sequence grew past the memory it reserved");
    batch_.push_back({.state = &slot.state,
                      .tokens = item.tokens,
                      .logits = item.wants_logits ? model::LogitsWanted::kLast : model::LogitsWanted::kNone,
                      .results_from = item.results_from});
  }
  forward_->Run(batch_, logits);
}

}  // namespace millrace::engine
