#include "text/byte_pair_merger.h"

#include <algorithm>

#include "base/check.h"

namespace millrace::text {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr TokenId kGone = -1;  // the token of a symbol that became part of the one before it

}  // namespace

BytePairMerger::BytePairMerger(std::span<const TokenId> byte_tokens, std::span<const Merge> merges)
    : byte_tokens_(byte_tokens.begin(), byte_tokens.end()), ranks_(merges.size()) {
  MILLRACE_CHECK(byte_tokens.size() == 256, "the alphabet has one token per byte");
  results_.reserve(merges.size());
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    ranks_.Insert(static_cast<uint32_t>(merges[rank].left), static_cast<uint32_t>(merges[rank].right), rank);
    results_.push_back(merges[rank].result);
  }
}

void BytePairMerger::PushCandidate(uint32_t left, Scratch& scratch) const {
  const Scratch::Symbol& symbol = scratch.symbols_[left];
  if (symbol.next == kNone) return;
  const TokenId right_token = scratch.symbols_[symbol.next].token;
  const uint32_t rank = ranks_.Find(static_cast<uint32_t>(symbol.token), static_cast<uint32_t>(right_token));
  if (rank == PairRanks::kNone) return;
  scratch.heap_.push_back({rank, left, symbol.token, right_token});
}

void BytePairMerger::LinkBytes(std::string_view piece, Scratch& scratch) const {
  const auto n = static_cast<uint32_t>(piece.size());
  scratch.symbols_.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    scratch.symbols_[i] = {.token = byte_tokens_[static_cast<uint8_t>(piece[i])],
                           .previous = i == 0 ? kNone : i - 1,
                           .next = i + 1 == n ? kNone : i + 1};
  }
}

// The symbol `left` and the one behind it become one.
void BytePairMerger::Join(uint32_t left, TokenId result, Scratch& scratch) {
  Scratch::Symbol& symbol = scratch.symbols_[left];
  Scratch::Symbol& right = scratch.symbols_[symbol.next];
  symbol.token = result;
  symbol.next = right.next;
  right.token = kGone;
  if (right.next != kNone) scratch.symbols_[right.next].previous = left;
}

// A linked list of symbols and a heap of pairs. Heap entries are not removed when a merge takes one of their
// symbols away; an entry is stale when the symbols no longer are the pair it was made for.
void BytePairMerger::Encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const {
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  LinkBytes(piece, scratch);
  heap.clear();
  for (uint32_t i = 0; i < piece.size(); ++i) PushCandidate(i, scratch);
  std::ranges::make_heap(heap, later);
  const auto push = [&](uint32_t left) {
    const size_t before = heap.size();
    PushCandidate(left, scratch);
    if (heap.size() > before) std::ranges::push_heap(heap, later);
  };
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, later);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    const Scratch::Symbol& left = symbols[best.left];
    if (left.token != best.left_token || left.next == kNone) continue;
    if (symbols[left.next].token != best.right_token) continue;
    Join(best.left, results_[best.rank], scratch);
    push(best.left);
    if (left.previous != kNone) push(left.previous);
  }
  for (const Scratch::Symbol& symbol : symbols) {
    if (symbol.token != kGone) ids.push_back(symbol.token);
  }
}

}  // namespace millrace::text
