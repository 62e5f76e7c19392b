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

using cache::TailKind;

// How many places others may wait for in one prompt.
constexpr size_t kAskedTails = 16;

int64_t PagesFor(int64_t tokens, int64_t page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

// The options with every default filled in.
struct Sizes {
  int64_t max_model_len = 0;
  uint32_t n_pages = 0;
  uint32_t n_tails = 0;
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
  const int64_t page = options.page_tokens;
  const int64_t n_pages = options.kv_tokens ? PagesFor(*options.kv_tokens, page)
                                            : PagesFor(max_model_len, page) * options.max_num_seqs;
  if (n_pages < 1 || n_pages >= std::numeric_limits<uint32_t>::max()) {
    return OutOfRange("max-total-tokens", options.kv_tokens.value_or(n_pages * page),
                      fmt::format("at least 1 and less than 2^32 pages of {} tokens", page));
  }
  // Tails of all prompts that run and of as many that have run, and some of what long prompts leave.
  const int64_t n_tails = options.prefix_tails.value_or(static_cast<int>(
      std::max<int64_t>({16, int64_t{8} * options.max_num_seqs, std::min<int64_t>(n_pages / 64, 65536)})));
  if (n_tails < 0 || n_tails > kMaxPrefixTails)
    return OutOfRange("prefix-cache-tails", n_tails, fmt::format("from 0 to {}", kMaxPrefixTails));
  // A sequence longer than the pool would never come to its end.
  max_model_len = std::min(max_model_len, n_pages * page);
  return Sizes{max_model_len,
               static_cast<uint32_t>(n_pages),
               options.prefix_caching ? static_cast<uint32_t>(n_tails) : 0,
               {.max_batch_tokens = options.max_batch_tokens,
                .max_batch_items = std::min<int64_t>(options.max_num_seqs, options.max_batch_tokens),
                .late_layers = options.late_layers,
                .numerics = options.numerics,
                .page_tokens = page}};
}

cache::PrefixTree::Options TreeOptions(const model::LayerPlan& plan, const Sizes& sizes) {
  return {.page_tokens = sizes.forward.page_tokens,
          .tail_bytes = model::WindowLayout(plan).bytes(),
          .n_tails = sizes.n_tails};
}

uint64_t PageTableBytes(const Sizes& sizes) {
  const int64_t page = sizes.forward.page_tokens;
  return static_cast<uint64_t>(PagesFor(sizes.max_model_len, page)) * (sizeof(PageId) + sizeof(std::byte*)) +
         static_cast<uint64_t>(page) * sizeof(TokenId);
}

// States and page tables of all slots.
uint64_t WindowStateBytes(const model::LayerPlan& plan, const Sizes& sizes, int max_num_seqs) {
  return static_cast<uint64_t>(max_num_seqs) * (model::SequenceState::BytesFor(plan) + PageTableBytes(sizes));
}

}  // namespace

// A tail that others wait for.
struct ModelStepper::AskedTail {
  int64_t length = 0;
  TailKind kind{};
};

// One prepared sequence state and the pages it holds now.
struct ModelStepper::Slot {
  explicit Slot(const model::LayerPlan& plan) : state(plan) {}

  model::SequenceState state;
  std::vector<PageId> pages;     // those of the tree first, then its own
  std::optional<PageId> node;    // the last page in the tree, held
  int64_t tree_tokens = 0;       // tokens of its pages in the tree
  std::vector<TokenId> unfiled;  // tokens behind them
  int64_t begun_with = 0;        // tokens that NewSequence got
  int64_t results_from = 0;
  int64_t early_from = 0;        // from here on an early tail has whole rings
  std::vector<AskedTail> asked;  // ahead of the state; as many as it has room for

  // Of the step that runs.
  std::vector<model::TailRequest> requests;
  struct NewTail {
    int64_t length = 0;
    cache::TailId slot;
    TailKind kind{};
  };
  std::vector<NewTail> new_tails;
  // The latest nodes that the sequence gave a tail while it generated.
  std::vector<std::pair<PageId, cache::TailId>> generated_tails;

  // The first position whose results the next step is asked for.
  int64_t ResultsFrom() const {
    int64_t from = results_from;
    for (const AskedTail& tail : asked)
      if (tail.kind == TailKind::kFull) from = std::min(from, tail.length);
    return from;
  }
};

class ModelStepper::Sequence : public StepSequence {
 public:
  Sequence(ModelStepper& stepper, Slot& slot) : stepper_(stepper), slot_(slot) {}
  ~Sequence() override { stepper_.Release(slot_); }

  Slot& slot() { return slot_; }
  const Slot& slot() const { return slot_; }

 private:
  ModelStepper& stepper_;
  Slot& slot_;
};

Result<std::vector<PlannedMemory>> ModelStepper::PlanMemory(const model::LayerPlan& plan,
                                                            const StepperOptions& options, int n_threads) {
  MILLRACE_ASSIGN_OR_RETURN(const Sizes sizes, ResolveSizes(plan.config, options));
  const model::PageLayout layout(plan, options.page_tokens);
  const cache::PrefixTree::Options tree = TreeOptions(plan, sizes);
  const char* const pool_grows_with = options.kv_tokens ? "max-total-tokens" : "max-num-seqs x max-model-len";
  std::vector<PlannedMemory> lines;
  lines.push_back({"kv pages", cache::PagePool::BytesFor(layout.page_bytes, sizes.n_pages), pool_grows_with});
  lines.push_back(
      {"prefix tree", cache::PrefixTree::TreeBytes(tree.page_tokens, sizes.n_pages), pool_grows_with});
  lines.push_back({"prefix tails", cache::PrefixTree::TailBytes(tree.tail_bytes, tree.n_tails),
                   options.prefix_tails ? "prefix-cache-tails" : "max-num-seqs, the pool"});
  lines.push_back({"window states", WindowStateBytes(plan, sizes, options.max_num_seqs),
                   "max-num-seqs, a little with max-model-len"});
  for (PlannedMemory& line : model::Forward::PlanScratch(plan, sizes.forward, n_threads))
    lines.push_back(std::move(line));
  lines.push_back({"logits and sampling",
                   LogitsAndSamplingBytes(plan.config.vocab_size, options.max_num_seqs), "max-num-seqs"});
  return lines;
}

Result<std::unique_ptr<ModelStepper>> ModelStepper::Create(const model::Checkpoint& checkpoint,
                                                           model::EngramHash engram, ThreadPool& pool,
                                                           const StepperOptions& options,
                                                           MemoryLedger* ledger) {
  MILLRACE_ASSIGN_OR_RETURN(const Sizes sizes, ResolveSizes(checkpoint.config(), options));
  MILLRACE_ASSIGN_OR_RETURN(const model::LayerPlan plan, model::LayerPlan::Build(checkpoint.config()));
  MILLRACE_ASSIGN_OR_RETURN(
      auto forward, model::Forward::Create(checkpoint, std::move(engram), pool, sizes.forward, ledger));
  MILLRACE_ASSIGN_OR_RETURN(
      auto pages, cache::PagePool::Create(forward->page_layout().page_bytes, sizes.n_pages, ledger));
  MILLRACE_ASSIGN_OR_RETURN(auto tree, cache::PrefixTree::Create(*pages, TreeOptions(plan, sizes), ledger));
  std::unique_ptr<ModelStepper> stepper(
      new ModelStepper(std::move(forward), std::move(pages), std::move(tree), sizes.max_model_len, options));
  if (ledger != nullptr) {
    const uint64_t bytes = WindowStateBytes(plan, sizes, options.max_num_seqs);
    stepper->states_account_ = &ledger->Open("window states", bytes);
    stepper->states_account_->Add(bytes);
  }
  return stepper;
}

ModelStepper::ModelStepper(std::unique_ptr<model::Forward> forward, std::unique_ptr<cache::PagePool> pages,
                           std::unique_ptr<cache::PrefixTree> tree, int64_t max_model_len,
                           const StepperOptions& options)
    : forward_(std::move(forward)),
      pages_(std::move(pages)),
      tree_(std::move(tree)),
      max_model_len_(max_model_len),
      page_tokens_(options.page_tokens),
      early_tail_tokens_(options.early_tail_pages * options.page_tokens),
      prefix_caching_(options.prefix_caching),
      trace_(options.trace) {
  const auto max_pages = static_cast<size_t>(PagesFor(max_model_len, page_tokens_));
  for (int i = 0; i < options.max_num_seqs; ++i) {
    Slot& slot = *slots_.emplace_back(std::make_unique<Slot>(forward_->plan()));
    slot.pages.reserve(max_pages);
    slot.state.pages.reserve(max_pages);
    slot.unfiled.reserve(static_cast<size_t>(page_tokens_));
    slot.asked.reserve(kAskedTails);
    free_slots_.push_back(&slot);
  }
  batch_.reserve(slots_.size());
  path_.reserve(max_pages);
  other_path_.reserve(max_pages);
}

ModelStepper::~ModelStepper() {
  MILLRACE_CHECK(free_slots_.size() == slots_.size(), "a sequence outlives its model");
  if (states_account_ != nullptr) states_account_->Remove(states_account_->live_bytes());
}

int64_t ModelStepper::kv_tokens() const {
  return int64_t{pages_->n_pages()} * page_tokens_;
}

int64_t ModelStepper::free_kv_tokens() const {
  return int64_t{tree_->available_pages()} * page_tokens_;
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

CacheStats ModelStepper::cache_stats() const noexcept {
  const cache::PrefixTreeStats tree = tree_->stats();
  const int64_t free = pages_->free_pages();
  return {.capacity_tokens = kv_tokens(),
          .in_use_tokens = (pages_->n_pages() - free - tree.evictable_pages) * page_tokens_,
          .reusable_tokens = tree.evictable_pages * page_tokens_,
          .tails = tree.tails,
          .evicted_tokens = tree.evicted_pages * static_cast<uint64_t>(page_tokens_),
          .evicted_tails = tree.evicted_tails};
}

Status ModelStepper::CheckCache() const {
  uint64_t holds = 0;
  for (const auto& slot : slots_) holds += slot->node.has_value();
  return tree_->CheckIntegrity(holds);
}

bool ModelStepper::HasFullTail(PageId node) const {
  const auto tail = tree_->TailOf(node);
  return tail && tail->kind == TailKind::kFull;
}

int64_t ModelStepper::WantedFrom(int64_t n_tokens, int64_t shared, bool full_tail) const {
  if (tree_->n_tails() == 0) return n_tokens - 1;
  const int64_t last = (n_tokens - 1) / page_tokens_ * page_tokens_;
  const int64_t first = std::max(last - (kPromptTails - 1) * page_tokens_, page_tokens_);
  const int64_t wanted = std::max(first, full_tail ? shared + page_tokens_ : shared);
  return wanted <= last ? wanted : n_tokens - 1;
}

ModelStepper::Beginning ModelStepper::ChooseBeginning(int64_t n_tokens, std::span<const PageId> path) const {
  const model::LayerPlan& plan = forward_->plan();
  const int64_t shared = std::ssize(path) * page_tokens_;
  Beginning begin;
  begin.results_from = WantedFrom(n_tokens, shared, !path.empty() && HasFullTail(path.back()));
  if (path.empty()) return begin;
  begin.length = plan.ReplayStart(shared, begin.results_from);
  for (size_t i = path.size(); i-- > 0;) {
    const int64_t length = static_cast<int64_t>(i + 1) * page_tokens_;
    if (length < begin.length) break;
    const auto tail = tree_->TailOf(path[i]);
    if (!tail) continue;
    if (tail->kind == TailKind::kEarly && !plan.EarlyRingsSuffice(length, begin.results_from)) continue;
    begin.length = length;
    begin.tail = path[i];
    break;
  }
  return begin;
}

std::optional<TailKind> ModelStepper::TailToBeginWith(const Slot& slot, int64_t n_tokens,
                                                      int64_t length) const {
  if (tree_->n_tails() == 0) return std::nullopt;
  if (slot.asked.size() == kAskedTails &&
      std::ranges::find(slot.asked, length, &AskedTail::length) == slot.asked.end())
    return std::nullopt;
  const model::LayerPlan& plan = forward_->plan();
  if (length >= slot.early_from &&
      plan.EarlyRingsSuffice(length, WantedFrom(n_tokens, length, /*full_tail=*/false)))
    return TailKind::kEarly;
  return slot.state.CanGive(plan, length) ? std::optional(TailKind::kFull) : std::nullopt;
}

std::optional<SharedReading> ModelStepper::WorthWaiting(const StepSequence& reader,
                                                        std::span<const TokenId> tokens,
                                                        int64_t common) const noexcept {
  const Slot& slot = static_cast<const Sequence&>(reader).slot();
  const auto n_tokens = static_cast<int64_t>(tokens.size());
  const int64_t length = std::min(common, n_tokens - 1) / page_tokens_ * page_tokens_;
  if (!prefix_caching_ || length <= slot.state.length()) return std::nullopt;
  tree_->Find(tokens.first(tokens.size() - 1), other_path_);
  if (std::ssize(other_path_) * page_tokens_ >= length) return std::nullopt;
  const int64_t now = ChooseBeginning(n_tokens, other_path_).length;
  const bool tail = TailToBeginWith(slot, n_tokens, length).has_value();
  const int64_t then =
      tail ? length : forward_->plan().ReplayStart(length, WantedFrom(n_tokens, length, /*full_tail=*/false));
  if (then - now < page_tokens_) return std::nullopt;
  return SharedReading{.length = length, .saved = then - now, .asks = tail};
}

void ModelStepper::LeaveFor(StepSequence& reader, int64_t n_tokens, int64_t length) noexcept {
  Slot& slot = static_cast<Sequence&>(reader).slot();
  const std::optional<TailKind> kind = TailToBeginWith(slot, n_tokens, length);
  if (!kind) return;
  const auto asked = std::ranges::find(slot.asked, length, &AskedTail::length);
  if (asked == slot.asked.end()) {
    slot.asked.push_back({length, *kind});
  } else {
    asked->kind = std::max(asked->kind, *kind);
  }
}

void ModelStepper::ForgetAsked(StepSequence& reader) noexcept {
  static_cast<Sequence&>(reader).slot().asked.clear();
}

Result<StartedSequence> ModelStepper::NewSequence(std::span<const TokenId> tokens) {
  const auto n_tokens = static_cast<int64_t>(tokens.size());
  MILLRACE_CHECK(n_tokens >= 1 && n_tokens <= max_model_len_, "a sequence longer than the model's limit");
  if (free_slots_.empty()) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("all {} sequence states are in use (--max-num-seqs)", slots_.size()));
  }
  path_.clear();
  // The last token is computed whatever is cached: its logits are wanted.
  if (prefix_caching_) tree_->Find(tokens.first(tokens.size() - 1), path_);
  if (!path_.empty()) tree_->Hold(path_.back());
  const auto needed = static_cast<uint32_t>(PagesFor(n_tokens, page_tokens_) - std::ssize(path_));
  // Every sequence that runs may be about to need a page.
  const auto running = static_cast<uint32_t>(slots_.size() - free_slots_.size());
  if (const uint32_t available = tree_->available_pages(); needed + running > available) {
    if (!path_.empty()) tree_->Release(path_.back());
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("KV memory for a sequence of {} tokens: {} pages are needed and {} kept for the "
                             "sequences that run, {} of {} are free",
                             n_tokens, needed, running, available, pages_->n_pages()));
  }
  Slot& slot = *free_slots_.back();
  free_slots_.pop_back();
  for (const PageId page : path_) AddPage(slot, page);
  if (!path_.empty()) slot.node = path_.back();
  for (uint32_t i = 0; i < needed; ++i) AddPage(slot, *tree_->Allocate());

  const int64_t shared = static_cast<int64_t>(path_.size()) * page_tokens_;
  const Beginning begin = ChooseBeginning(n_tokens, path_);
  slot.begun_with = n_tokens;
  slot.tree_tokens = shared;
  slot.results_from = begin.results_from;
  // A replay makes the last source's entries right from the end of the shared pages on.
  const bool replays = !begin.tail && begin.length > 0;
  slot.early_from = shared + (replays ? forward_->plan().config.sliding_window - 1 : 1);
  if (shared > 0) {
    const auto rings = begin.tail ? tree_->TailOf(*begin.tail)->rings : std::span<const std::byte>();
    const bool whole = begin.tail && tree_->TailOf(*begin.tail)->kind == TailKind::kFull;
    forward_->Resume(slot.state, tokens.first(static_cast<size_t>(shared)), begin.length,
                     whole || begin.length == 0 ? begin.length : begin.results_from, rings);
    if (begin.tail) tree_->UseTail(*begin.tail);
  }
  return StartedSequence{.sequence = std::make_unique<Sequence>(*this, slot),
                         .length = begin.length,
                         .replayed_tokens = shared - begin.length};
}

Status ModelStepper::Reserve(StepSequence& sequence, int64_t length) {
  Slot& slot = static_cast<Sequence&>(sequence).slot();
  MILLRACE_CHECK(length <= max_model_len_, "a sequence longer than the model's limit");
  while (std::ssize(slot.pages) * page_tokens_ < length) {
    MILLRACE_ASSIGN_OR_RETURN(const PageId page, tree_->Allocate());
    AddPage(slot, page);
  }
  return {};
}

void ModelStepper::AddPage(Slot& slot, PageId page) {
  slot.pages.push_back(page);
  slot.state.pages.push_back(pages_->Data(page));
}

void ModelStepper::Release(Slot& slot) {
  for (const Slot::NewTail& tail : slot.new_tails) tree_->FreeTail(tail.slot);  // of a step that failed
  slot.new_tails.clear();
  slot.requests.clear();
  slot.generated_tails.clear();
  slot.asked.clear();
  const auto in_tree = static_cast<size_t>(slot.tree_tokens / page_tokens_);
  for (size_t i = in_tree; i < slot.pages.size(); ++i) pages_->Free(slot.pages[i]);
  if (slot.node) tree_->Release(*slot.node);
  slot.node.reset();
  slot.tree_tokens = 0;
  slot.unfiled.clear();
  slot.pages.clear();
  slot.state.pages.clear();
  slot.state.Reset();
  free_slots_.push_back(&slot);
}

std::optional<TailKind> ModelStepper::WantedTail(const Slot& slot, int64_t length) const {
  if (length >= slot.begun_with) return TailKind::kFull;
  // The first wanted one of the prompt's last boundaries is where results begin.
  const int64_t last = (slot.begun_with - 1) / page_tokens_ * page_tokens_;
  if (length > last - kPromptTails * page_tokens_) {
    return length >= slot.results_from ? std::optional(TailKind::kFull) : std::nullopt;
  }
  if (length % early_tail_tokens_ != 0 || length < slot.early_from) return std::nullopt;
  return TailKind::kEarly;
}

// Takes slots for the tails at the page boundaries that a step up to `end` passes.
void ModelStepper::PlanTails(Slot& slot, int64_t end) {
  slot.requests.clear();
  if (!prefix_caching_) return;
  const int64_t start = slot.state.length();
  for (int64_t length = (start / page_tokens_ + 1) * page_tokens_; length <= end; length += page_tokens_) {
    std::optional<TailKind> kind = WantedTail(slot, length);
    const auto asked = std::ranges::find(slot.asked, length, &AskedTail::length);
    if (asked != slot.asked.end()) kind = std::max(kind.value_or(asked->kind), asked->kind);
    if (!kind) continue;
    // One that somebody waits for is used at once, whatever it holds.
    const std::optional<cache::TailId> tail =
        tree_->AllocateTail(asked != slot.asked.end() ? TailKind::kFull : *kind);
    if (!tail) continue;
    slot.new_tails.push_back({length, *tail, *kind});
    slot.requests.push_back({length, tree_->TailData(*tail)});
  }
}

void ModelStepper::KeepPages(Slot& slot, std::span<const TokenId> tokens, int64_t start) {
  if (!prefix_caching_) return;
  const int64_t filed = slot.tree_tokens + std::ssize(slot.unfiled);
  for (const TokenId token :
       tokens.subspan(static_cast<size_t>(std::clamp<int64_t>(filed - start, 0, std::ssize(tokens))))) {
    slot.unfiled.push_back(token);
    if (std::ssize(slot.unfiled) < page_tokens_) continue;
    const auto index = static_cast<size_t>(slot.tree_tokens / page_tokens_);
    const PageId node = tree_->Extend(slot.node, slot.unfiled, slot.pages[index]);
    slot.pages[index] = node;
    slot.state.pages[index] = pages_->Data(node);
    slot.node = node;
    slot.tree_tokens += page_tokens_;
    slot.unfiled.clear();
  }
}

void ModelStepper::KeepTails(Slot& slot) {
  constexpr size_t kGeneratedTails = 2;
  for (const Slot::NewTail& tail : slot.new_tails) {
    MILLRACE_CHECK(tail.kind == TailKind::kEarly || slot.state.results_from() <= tail.length,
                   "the late layers have left out what a full tail needs");
    const PageId node = slot.pages[static_cast<size_t>(tail.length / page_tokens_ - 1)];
    const bool taken = tree_->AttachTail(node, tail.slot, tail.kind);
    if (!taken || tail.length < slot.begun_with) continue;
    slot.generated_tails.emplace_back(node, tail.slot);
    if (slot.generated_tails.size() <= kGeneratedTails) continue;
    tree_->DropTail(slot.generated_tails.front().first, slot.generated_tails.front().second);
    slot.generated_tails.erase(slot.generated_tails.begin());
  }
  slot.new_tails.clear();
  std::erase_if(slot.asked, [&](const AskedTail& tail) { return tail.length <= slot.state.length(); });
}

void ModelStepper::Step(std::span<const StepItem> items, std::span<float> logits) {
  batch_.clear();
  for (const StepItem& item : items) {
    Slot& slot = static_cast<Sequence*>(item.sequence)->slot();
    const int64_t length = slot.state.length() + static_cast<int64_t>(item.tokens.size());
    MILLRACE_CHECK(length <= std::ssize(slot.pages) * page_tokens_,
                   "a sequence grew past the memory it reserved");
    PlanTails(slot, length);
    batch_.push_back({.state = &slot.state,
                      .tokens = item.tokens,
                      .logits = item.wants_logits ? model::LogitsWanted::kLast : model::LogitsWanted::kNone,
                      .results_from = slot.ResultsFrom(),
                      .tails = slot.requests});
  }
  forward_->Run(batch_, logits, trace_);
  for (const StepItem& item : items) {
    Slot& slot = static_cast<Sequence*>(item.sequence)->slot();
    KeepPages(slot, item.tokens, slot.state.length() - std::ssize(item.tokens));
    KeepTails(slot);
  }
}

}  // namespace millrace::engine
