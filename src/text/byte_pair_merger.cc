#include "text/byte_pair_merger.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <span>

#include "base/check.h"

namespace millrace::text {
namespace {

constexpr uint32_t kNoRank = (1u << 24) - 1;
constexpr uint64_t kEmptySlot = ~uint64_t{0};
constexpr uint32_t kNone = ~uint32_t{0};
constexpr TokenId kGone = -1;  // the token of a symbol that became part of the one before it

// Up to here looking at all pairs after each merge is cheaper than a heap.
constexpr size_t kShortPiece = 128;
constexpr int32_t kNoPair = std::numeric_limits<int32_t>::max();

using PairVector __attribute__((vector_size(16))) = int32_t;
constexpr size_t kLanes = sizeof(PairVector) / sizeof(int32_t);

// Of a whole number of vectors, aligned.
int32_t Lowest(std::span<const int32_t> pairs) {
  PairVector lowest = {kNoPair, kNoPair, kNoPair, kNoPair};
  for (size_t i = 0; i < pairs.size(); i += kLanes) {
    PairVector some;
    std::memcpy(&some, &pairs[i], sizeof(some));
    lowest = some < lowest ? some : lowest;
  }
  return std::min(std::min(lowest[0], lowest[1]), std::min(lowest[2], lowest[3]));
}

uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(left) << 20 | static_cast<uint64_t>(right);
}

uint64_t Home(uint64_t key, int shift) {
  return key * 0x9E3779B97F4A7C15u >> shift;
}

// The symbol `left` and the one behind it become one.
template <class Symbols>
void Join(Symbols& symbols, uint32_t left, TokenId result) {
  auto& right = symbols[symbols[left].next];
  symbols[left].token = result;
  right.token = kGone;
  symbols[left].next = right.next;
  if (right.next != kNone) symbols[right.next].previous = left;
}

template <class Symbols>
void AppendTokens(const Symbols& symbols, std::vector<TokenId>& ids) {
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) ids.push_back(symbols[i].token);
}

}  // namespace

BytePairMerger::BytePairMerger(std::span<const TokenId> byte_tokens, std::span<const Merge> merges,
                               size_t huge_piece)
    : huge_piece_(huge_piece), byte_tokens_(byte_tokens.begin(), byte_tokens.end()) {
  MILLRACE_CHECK(byte_tokens.size() == 256, "the alphabet has one token per byte");
  const size_t n_slots = std::bit_ceil(std::max<size_t>(2 * merges.size(), 2));
  slots_.assign(n_slots, kEmptySlot);
  shift_ = 64 - std::countr_zero(n_slots);
  results_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = PairKey(merges[rank].left, merges[rank].right);
    uint64_t slot = Home(key, shift_);
    while (slots_[slot] != kEmptySlot) slot = (slot + 1) & (n_slots - 1);
    slots_[slot] = key << 24 | rank;
    results_.push_back(merges[rank].result);
  }
}

uint32_t BytePairMerger::Rank(TokenId left, TokenId right) const {
  const uint64_t key = PairKey(left, right);
  const uint64_t mask = slots_.size() - 1;
  for (uint64_t slot = Home(key, shift_);; slot = (slot + 1) & mask) {
    const uint64_t entry = slots_[slot];
    if (entry >> 24 == key) return static_cast<uint32_t>(entry & kNoRank);
    if (entry == kEmptySlot) return kNoRank;
  }
}

void BytePairMerger::Encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const {
  if (piece.size() <= kShortPiece) {
    EncodeShort(piece, ids);
  } else if (piece.size() < huge_piece_) {
    EncodeLong(piece, scratch, ids);
  } else {
    EncodeHuge(piece, scratch, ids);
  }
}

// Every pair's rank with its place in one number, so that the lowest of all is the next merge. Places stay:
// what has been merged away is never the lowest again.
void BytePairMerger::EncodeShort(std::string_view piece, std::vector<TokenId>& ids) const {
  constexpr int32_t kPlaces = 256;
  static_assert(kShortPiece <= kPlaces);
  std::array<TokenId, kShortPiece> tokens;
  std::array<uint16_t, kShortPiece + 1> next,
      previous;  // next: n behind the last; previous: n before the first
  alignas(kLanes * sizeof(int32_t)) std::array<int32_t, kShortPiece> pairs;
  const auto n = static_cast<uint16_t>(piece.size());
  const size_t n_padded = (n + kLanes - 1) / kLanes * kLanes;
  const auto rate = [&](uint16_t left) {
    const uint32_t rank = next[left] == n ? kNoRank : Rank(tokens[left], tokens[next[left]]);
    pairs[left] = rank == kNoRank ? kNoPair : static_cast<int32_t>(rank) * kPlaces + left;
  };
  for (uint16_t i = 0; i < n; ++i) {
    tokens[i] = byte_tokens_[static_cast<uint8_t>(piece[i])];
    next[i] = static_cast<uint16_t>(i + 1);
    previous[i] = i == 0 ? n : static_cast<uint16_t>(i - 1);
  }
  for (uint16_t i = 0; i < n; ++i) rate(i);
  std::fill(pairs.begin() + n, pairs.begin() + static_cast<ptrdiff_t>(n_padded), kNoPair);
  for (;;) {
    const int32_t best = Lowest(std::span(pairs).first(n_padded));
    if (best == kNoPair) break;
    const auto left = static_cast<uint16_t>(best % kPlaces);
    const uint16_t right = next[left];
    tokens[left] = results_[static_cast<size_t>(best / kPlaces)];
    pairs[right] = kNoPair;
    next[left] = next[right];
    previous[next[left]] = left;
    rate(left);
    if (previous[left] != n) rate(previous[left]);
  }
  for (uint16_t i = 0; i < n; i = next[i]) ids.push_back(tokens[i]);
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

void BytePairMerger::PushCandidate(uint32_t left, Scratch& scratch) const {
  const Scratch::Symbol& symbol = scratch.symbols_[left];
  if (symbol.next == kNone) return;
  const TokenId right_token = scratch.symbols_[symbol.next].token;
  const uint32_t rank = Rank(symbol.token, right_token);
  if (rank == kNoRank) return;
  scratch.heap_.push_back({rank, left, symbol.token, right_token});
}

// A linked list of symbols and a heap of pairs. Heap entries are not removed when a merge takes one of their
// symbols away; an entry is stale when the symbols no longer are the pair it was made for.
void BytePairMerger::EncodeLong(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const {
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
    Join(symbols, best.left, results_[best.rank]);
    push(best.left);
    if (left.previous != kNone) push(left.previous);
  }
  AppendTokens(symbols, ids);
}

// The same with another queue. Its entries are smaller: that a pair still has the entry's rank is looked up.
void BytePairMerger::EncodeHuge(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const {
  auto& symbols = scratch.symbols_;
  RankQueue& queue = scratch.queue_;
  const auto rank_at = [&](uint32_t left) {
    const Scratch::Symbol& symbol = symbols[left];
    if (symbol.token == kGone || symbol.next == kNone) return kNoRank;
    return Rank(symbol.token, symbols[symbol.next].token);
  };
  const auto push = [&](uint32_t left) {
    if (const uint32_t rank = rank_at(left); rank != kNoRank) queue.Push(rank, left);
  };
  LinkBytes(piece, scratch);
  queue.Reset(results_.size());
  for (uint32_t i = 0; i < piece.size(); ++i) push(i);
  while (!queue.empty()) {
    const auto [rank, left] = queue.Pop();
    if (rank_at(left) != rank) continue;
    Join(symbols, left, results_[rank]);
    push(left);
    if (symbols[left].previous != kNone) push(symbols[left].previous);
  }
  AppendTokens(symbols, ids);
}

}  // namespace millrace::text
