#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/ledger.h"
#include "base/result.h"
#include "cache/page_pool.h"

namespace millrace::cache {

using TailId = StrongId<struct TailTag>;  // a slot for a tail

// What a tail holds of the window rings behind a page.
enum class TailKind : uint8_t {
  kEarly,  // of the layers that every token of a prompt goes through
  kFull,   // of all layers
};

struct PrefixTreeStats {
  uint32_t pages = 0;            // in the tree
  uint32_t evictable_pages = 0;  // of these, that no sequence holds
  uint32_t tails = 0;
  uint64_t evicted_pages = 0;  // all totals only grow
  uint64_t evicted_tails = 0;
};

// The prefix cache: full pages of global state, found by the tokens they hold and all tokens before them, and
// tails, copies of the window rings behind a page. A node of the tree is one page, and has the page's id.
// Pages come from the pool that sequences take theirs from: the cache is what sequences have left behind and
// nobody has needed room for since.
//
// A sequence holds the deepest node that it reads; that node and all before it stay. Pages that nobody holds
// are evicted from the leaves, least recently used first. Tails have slots of their own: early ones give way
// first, then full ones, each kind by last use; a tail goes with its page.
//
// Nodes are found by a hash chained over the tokens and compared by the tokens themselves: a collision is a
// miss, never another's page. Nothing allocates after Create. One thread.
class PrefixTree {
 public:
  struct Options {
    int64_t page_tokens = 0;  // >= 1
    size_t tail_bytes = 0;    // >= 1
    uint32_t n_tails = 0;     // 0: none are kept
  };

  // `pages` outlives the tree; `ledger` (optional), too: accounts "prefix tree" and "prefix tails".
  static Result<std::unique_ptr<PrefixTree>> Create(PagePool& pages, const Options& options,
                                                    MemoryLedger* ledger = nullptr);
  // No sequence holds a node.
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // Bytes of the tree for a pool of `n_pages`, tails not included; and of the tails.
  static uint64_t TreeBytes(int64_t page_tokens, uint32_t n_pages);
  static uint64_t TailBytes(size_t tail_bytes, uint32_t n_tails);

  // Fills `path` with the nodes whose tokens are the longest run of whole pages that `tokens` begin with,
  // first page first.
  void Find(std::span<const TokenId> tokens, std::vector<PageId>& path) const;

  // A sequence begins to read the pages up to `node`.
  void Hold(PageId node);
  // It is done with them. They count as used now.
  void Release(PageId node);

  // Puts `page`, which the caller hands over, behind `parent` (held by the caller;
  // nullopt: it is the first) as the page of `tokens` [page_tokens]. When the tree has one for them already,
  // the caller's is freed. Returns the node; the caller's hold on `parent` has moved to it.
  PageId Extend(std::optional<PageId> parent, std::span<const TokenId> tokens, PageId page);

  // A page for a sequence: a free one, else one evicted. kResourceExhausted when sequences hold them all.
  Result<PageId> Allocate();
  uint32_t n_tails() const { return options_.n_tails; }
  // How many pages Allocate can give.
  uint32_t available_pages() const { return pages_.free_pages() + n_evictable_; }
  // Frees every page and tail that no sequence holds.
  void Clear();

  struct Tail {
    TailKind kind{};
    std::span<const std::byte> rings;  // [tail_bytes], until the next call that is not const
  };
  // The tail behind `node`, if it has one.
  std::optional<Tail> TailOf(PageId node) const;
  // The tail behind `node`, which has one, is used now.
  void UseTail(PageId node);

  // A slot for a new tail, as far as eviction gives one: an early tail takes the place of early ones only.
  std::optional<TailId> AllocateTail(TailKind kind);
  // [tail_bytes] of an allocated slot.
  std::span<std::byte> TailData(TailId slot);
  // Gives back a slot that no node got.
  void FreeTail(TailId slot);
  // Gives the slot's content to `node`: true. Where the node has one that is as good, frees the slot: false.
  bool AttachTail(PageId node, TailId slot, TailKind kind);
  // Frees the tail behind `node` if it is still the one in `slot`.
  void DropTail(PageId node, TailId slot);

  PrefixTreeStats stats() const;

  // Whether counts, lists, pages and tails agree; kCorrupt says what does not. Walks everything. `holds`: how
  // many holds there are.
  Status CheckIntegrity(uint64_t holds) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Node {
    uint64_t hash_low = 0, hash_high = 0;  // over all tokens up to the page's last
    uint64_t last_use = 0;
    uint32_t parent = kNone;
    uint32_t next_in_bucket = kNone;
    uint32_t children = 0;
    uint32_t holds = 0;          // by sequences, of this node or of nodes behind it
    uint32_t less_used = kNone;  // in the list of evictable leaves
    uint32_t more_used = kNone;
    uint32_t tail = kNone;  // slot
    bool in_tree = false;
  };
  struct TailSlot {
    uint32_t node = kNone;
    TailKind kind{};
    uint64_t last_use = 0;
  };

  PrefixTree(PagePool& pages, const Options& options, std::unique_ptr<PagePool> tails, MemoryLedger* ledger);

  std::span<const TokenId> TokensOf(uint32_t node) const;
  uint32_t FindChild(uint32_t parent, std::span<const TokenId> tokens, uint64_t hash_low,
                     uint64_t hash_high) const;
  uint32_t& BucketOf(uint64_t hash_low) { return buckets_[hash_low & (buckets_.size() - 1)]; }
  uint32_t BucketOf(uint64_t hash_low) const { return buckets_[hash_low & (buckets_.size() - 1)]; }
  void Link(uint32_t node);  // into the list of evictable leaves, by last use
  void Unlink(uint32_t node);
  void Evict(uint32_t leaf);
  void ClearTail(uint32_t node);
  bool EvictTail(TailKind kind);

  PagePool& pages_;
  const Options options_;
  std::unique_ptr<PagePool> tails_;  // nullptr without tails
  std::vector<Node> nodes_;          // by page
  std::vector<TokenId> tokens_;      // [pages, page_tokens]
  std::vector<uint32_t> buckets_;    // a power of two of them
  std::vector<TailSlot> tail_slots_;
  uint32_t least_used_ = kNone;
  uint32_t most_used_ = kNone;
  uint32_t n_nodes_ = 0;
  uint32_t n_evictable_ = 0;
  uint64_t clock_ = 0;
  uint64_t evicted_pages_ = 0;
  uint64_t evicted_tails_ = 0;
  MemoryAccount* account_ = nullptr;
};

}  // namespace millrace::cache
