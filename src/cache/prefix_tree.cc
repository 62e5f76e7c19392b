#include "cache/prefix_tree.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace millrace::cache {
namespace {

size_t BucketsFor(uint32_t n_pages) {
  return std::bit_ceil(size_t{2} * n_pages);
}

struct Hash {
  uint64_t low = 0;
  uint64_t high = 0;
};

Hash Of(const void* bytes, size_t n) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, n);
  return {hash.low64, hash.high64};
}

Hash Chain(Hash before, std::span<const TokenId> tokens) {
  const Hash link[] = {before, Of(tokens.data(), tokens.size_bytes())};
  return Of(link, sizeof(link));
}

}  // namespace

Result<std::unique_ptr<PrefixTree>> PrefixTree::Create(PagePool& pages, const Options& options,
                                                       MemoryLedger* ledger) {
  MILLRACE_CHECK(options.page_tokens >= 1 && options.tail_bytes >= 1, "a prefix tree of empty pages");
  std::unique_ptr<PagePool> tails;
  if (options.n_tails > 0) {
    MILLRACE_ASSIGN_OR_RETURN(tails,
                              PagePool::Create(options.tail_bytes, options.n_tails, ledger, "prefix tails"));
  }
  return std::unique_ptr<PrefixTree>(new PrefixTree(pages, options, std::move(tails), ledger));
}

PrefixTree::PrefixTree(PagePool& pages, const Options& options, std::unique_ptr<PagePool> tails,
                       MemoryLedger* ledger)
    : pages_(pages),
      options_(options),
      tails_(std::move(tails)),
      nodes_(pages.n_pages()),
      tokens_(pages.n_pages() * static_cast<size_t>(options.page_tokens)),
      buckets_(BucketsFor(pages.n_pages()), kNone),
      tail_slots_(options.n_tails) {
  if (ledger != nullptr) {
    const uint64_t bytes = TreeBytes(options.page_tokens, pages.n_pages());
    account_ = &ledger->Open("prefix tree", bytes);
    account_->Add(bytes);
  }
}

PrefixTree::~PrefixTree() {
  Clear();
  MILLRACE_CHECK(n_nodes_ == 0, "a sequence outlives the prefix tree");
  if (account_ != nullptr) account_->Remove(account_->live_bytes());
}

uint64_t PrefixTree::TreeBytes(int64_t page_tokens, uint32_t n_pages) {
  return n_pages * (sizeof(Node) + static_cast<uint64_t>(page_tokens) * sizeof(TokenId)) +
         BucketsFor(n_pages) * sizeof(uint32_t);
}

uint64_t PrefixTree::TailBytes(size_t tail_bytes, uint32_t n_tails) {
  return n_tails == 0 ? 0 : PagePool::BytesFor(tail_bytes, n_tails) + n_tails * sizeof(TailSlot);
}

std::span<const TokenId> PrefixTree::TokensOf(uint32_t node) const {
  const auto n = static_cast<size_t>(options_.page_tokens);
  return std::span(tokens_).subspan(node * n, n);
}

uint32_t PrefixTree::FindChild(uint32_t parent, std::span<const TokenId> tokens, uint64_t hash_low,
                               uint64_t hash_high) const {
  for (uint32_t at = BucketOf(hash_low); at != kNone; at = nodes_[at].next_in_bucket) {
    const Node& node = nodes_[at];
    if (node.hash_low == hash_low && node.hash_high == hash_high && node.parent == parent &&
        std::ranges::equal(TokensOf(at), tokens))
      return at;
  }
  return kNone;
}

void PrefixTree::Find(std::span<const TokenId> tokens, std::vector<PageId>& path) const {
  path.clear();
  const auto n = static_cast<size_t>(options_.page_tokens);
  uint32_t parent = kNone;
  Hash hash;
  while (tokens.size() >= n) {
    const auto page = tokens.first(n);
    hash = Chain(hash, page);
    parent = FindChild(parent, page, hash.low, hash.high);
    if (parent == kNone) return;
    path.push_back({parent});
    tokens = tokens.subspan(n);
  }
}

void PrefixTree::Hold(PageId node) {
  MILLRACE_CHECK(nodes_[node.value].in_tree, "a hold on a page that is not in the tree");
  for (uint32_t at = node.value; at != kNone; at = nodes_[at].parent) {
    if (nodes_[at].holds++ > 0) continue;
    --n_evictable_;
    if (nodes_[at].children == 0) Unlink(at);
  }
}

void PrefixTree::Release(PageId node) {
  ++clock_;
  for (uint32_t at = node.value; at != kNone; at = nodes_[at].parent) {
    MILLRACE_CHECK(nodes_[at].holds > 0, "a node is released that nobody holds");
    nodes_[at].last_use = clock_;
    if (--nodes_[at].holds > 0) continue;
    ++n_evictable_;
    if (nodes_[at].children == 0) Link(at);
  }
}

PageId PrefixTree::Extend(std::optional<PageId> parent, std::span<const TokenId> tokens, PageId page) {
  MILLRACE_CHECK(static_cast<int64_t>(tokens.size()) == options_.page_tokens, "a node of less than a page");
  const uint32_t above = parent ? parent->value : kNone;
  MILLRACE_CHECK(!parent || nodes_[above].holds > 0, "a node is put behind one that may be evicted");
  const Hash hash = Chain(parent ? Hash{nodes_[above].hash_low, nodes_[above].hash_high} : Hash{}, tokens);
  if (const uint32_t found = FindChild(above, tokens, hash.low, hash.high); found != kNone) {
    pages_.Free(page);
    if (nodes_[found].holds++ == 0) {
      --n_evictable_;
      if (nodes_[found].children == 0) Unlink(found);
    }
    return {found};
  }
  Node& node = nodes_[page.value];
  MILLRACE_CHECK(!node.in_tree, "a page is put into the tree twice");
  uint32_t& bucket = BucketOf(hash.low);
  node = {.hash_low = hash.low,
          .hash_high = hash.high,
          .parent = above,
          .next_in_bucket = bucket,
          .holds = 1,
          .in_tree = true};
  bucket = page.value;
  std::ranges::copy(tokens, tokens_.begin() + page.value * options_.page_tokens);
  if (parent) ++nodes_[above].children;
  ++n_nodes_;
  return page;
}

Result<PageId> PrefixTree::Allocate() {
  if (pages_.free_pages() == 0 && least_used_ != kNone) Evict(least_used_);
  return pages_.Allocate();
}

void PrefixTree::Clear() {
  while (least_used_ != kNone) Evict(least_used_);
}

// Searches from both ends: a node that was released is among the most used, one whose last child was evicted
// mostly among the least.
void PrefixTree::Link(uint32_t node) {
  const uint64_t use = nodes_[node].last_use;
  uint32_t after = kNone;
  for (uint32_t low = least_used_, high = most_used_; low != kNone;
       low = nodes_[low].more_used, high = nodes_[high].less_used) {
    if (nodes_[high].last_use <= use) {
      after = high;
      break;
    }
    if (nodes_[low].last_use > use) {
      after = nodes_[low].less_used;
      break;
    }
  }
  const uint32_t before = after == kNone ? least_used_ : nodes_[after].more_used;
  nodes_[node].less_used = after;
  nodes_[node].more_used = before;
  (after == kNone ? least_used_ : nodes_[after].more_used) = node;
  (before == kNone ? most_used_ : nodes_[before].less_used) = node;
}

void PrefixTree::Unlink(uint32_t node) {
  const Node& n = nodes_[node];
  (n.less_used == kNone ? least_used_ : nodes_[n.less_used].more_used) = n.more_used;
  (n.more_used == kNone ? most_used_ : nodes_[n.more_used].less_used) = n.less_used;
}

void PrefixTree::Evict(uint32_t leaf) {
  Node& node = nodes_[leaf];
  MILLRACE_CHECK(node.in_tree && node.holds == 0 && node.children == 0, "a node in use is evicted");
  ClearTail(leaf);
  Unlink(leaf);
  uint32_t* link = &BucketOf(node.hash_low);
  while (*link != leaf) link = &nodes_[*link].next_in_bucket;
  *link = node.next_in_bucket;
  const uint32_t parent = node.parent;
  node.in_tree = false;
  --n_nodes_;
  --n_evictable_;
  ++evicted_pages_;
  pages_.Free({leaf});
  if (parent == kNone) return;
  --nodes_[parent].children;
  if (nodes_[parent].children == 0 && nodes_[parent].holds == 0) Link(parent);
}

std::optional<PrefixTree::Tail> PrefixTree::TailOf(PageId node) const {
  const uint32_t slot = nodes_[node.value].tail;
  if (slot == kNone) return std::nullopt;
  return Tail{.kind = tail_slots_[slot].kind,
              .rings = std::span<const std::byte>(tails_->Data({slot}), options_.tail_bytes)};
}

void PrefixTree::UseTail(PageId node) {
  tail_slots_[nodes_[node.value].tail].last_use = ++clock_;
}

bool PrefixTree::EvictTail(TailKind kind) {
  uint32_t victim = kNone;
  for (uint32_t slot = 0; slot < tail_slots_.size(); ++slot) {
    const TailSlot& candidate = tail_slots_[slot];
    if (candidate.node == kNone || candidate.kind != kind) continue;
    if (victim == kNone || candidate.last_use < tail_slots_[victim].last_use) victim = slot;
  }
  if (victim == kNone) return false;
  ClearTail(tail_slots_[victim].node);
  ++evicted_tails_;
  return true;
}

std::optional<TailId> PrefixTree::AllocateTail(TailKind kind) {
  if (tails_ == nullptr) return std::nullopt;
  if (tails_->free_pages() == 0 && !EvictTail(TailKind::kEarly) &&
      !(kind == TailKind::kFull && EvictTail(TailKind::kFull)))
    return std::nullopt;
  return TailId{tails_->Allocate()->value};
}

std::span<std::byte> PrefixTree::TailData(TailId slot) {
  return {tails_->Data({slot.value}), options_.tail_bytes};
}

void PrefixTree::FreeTail(TailId slot) {
  tails_->Free({slot.value});
}

bool PrefixTree::AttachTail(PageId node, TailId slot, TailKind kind) {
  MILLRACE_CHECK(nodes_[node.value].in_tree, "a tail without its page");
  const std::optional<Tail> there = TailOf(node);
  if (there && there->kind >= kind) {
    UseTail(node);
    FreeTail(slot);
    return false;
  }
  ClearTail(node.value);
  nodes_[node.value].tail = slot.value;
  tail_slots_[slot.value] = {.node = node.value, .kind = kind, .last_use = ++clock_};
  return true;
}

void PrefixTree::DropTail(PageId node, TailId slot) {
  if (nodes_[node.value].tail == slot.value) ClearTail(node.value);
}

void PrefixTree::ClearTail(uint32_t node) {
  const uint32_t slot = std::exchange(nodes_[node].tail, kNone);
  if (slot == kNone) return;
  tail_slots_[slot].node = kNone;
  FreeTail({slot});
}

PrefixTreeStats PrefixTree::stats() const {
  return {.pages = n_nodes_,
          .evictable_pages = n_evictable_,
          .tails = tails_ ? tails_->n_pages() - tails_->free_pages() : 0,
          .evicted_pages = evicted_pages_,
          .evicted_tails = evicted_tails_};
}

Status PrefixTree::CheckIntegrity(uint64_t holds) const {
  const auto corrupt = [](uint32_t node, std::string_view what) {
    return Error(ErrorCode::kCorrupt, fmt::format("node {} {}", node, what));
  };
  std::vector<uint32_t> children(nodes_.size()), held_behind(nodes_.size());
  uint32_t in_tree = 0, evictable = 0, leaves = 0, tails = 0;
  uint64_t at_roots = 0;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.in_tree) continue;
    ++in_tree;
    evictable += node.holds == 0;
    leaves += node.holds == 0 && node.children == 0;
    if (!pages_.is_allocated({i})) return corrupt(i, "has a page that is free");
    if (node.parent == kNone) {
      at_roots += node.holds;
    } else {
      if (!nodes_[node.parent].in_tree) return corrupt(i, "is behind a node that was evicted");
      ++children[node.parent];
      held_behind[node.parent] += node.holds;
    }
    if (FindChild(node.parent, TokensOf(i), node.hash_low, node.hash_high) != i)
      return corrupt(i, "is not found by its tokens");
    if (node.tail != kNone) {
      ++tails;
      if (tail_slots_[node.tail].node != i) return corrupt(i, "has another's tail");
    }
  }
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].in_tree) continue;
    if (children[i] != nodes_[i].children) return corrupt(i, "counts its children wrongly");
    if (held_behind[i] > nodes_[i].holds) return corrupt(i, "is held less than what is behind it");
  }
  if (at_roots != holds)
    return Error(ErrorCode::kCorrupt, fmt::format("{} holds, {} of them known", at_roots, holds));
  if (in_tree != n_nodes_ || evictable != n_evictable_)
    return Error(ErrorCode::kCorrupt, "the counts of nodes are wrong");
  uint64_t last = 0;
  for (uint32_t at = least_used_; at != kNone; at = nodes_[at].more_used, --leaves) {
    if (nodes_[at].children != 0 || nodes_[at].holds != 0 || leaves == 0)
      return corrupt(at, "is no evictable leaf and listed as one");
    if (nodes_[at].last_use < last) return corrupt(at, "is listed before one that was used earlier");
    last = nodes_[at].last_use;
  }
  if (leaves != 0) return Error(ErrorCode::kCorrupt, "an evictable leaf is not listed");
  if (tails_ != nullptr) {
    if (tails_->n_pages() - tails_->free_pages() != tails)
      return Error(ErrorCode::kCorrupt, "a tail belongs to no node");
    MILLRACE_RETURN_IF_ERROR(tails_->CheckIntegrity());
  }
  return pages_.CheckIntegrity();
}

}  // namespace millrace::cache
