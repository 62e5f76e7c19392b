#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/rank_queue.h"

namespace millrace::text {

// One rule: the neighbours `left` and `right` become `result`. Its rank is its place in the list.
struct Merge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId result = 0;
};

// Turns the bytes of one piece into tokens: starts with a token per byte and repeatedly joins the neighbours
// whose merge has the lowest rank, the leftmost on ties, until no neighbours have one. O(n log n) for a piece
// of n bytes, and O(n) for one that repeats itself. Immutable after construction; const members may be called
// from any thread.
class BytePairMerger {
 public:
  // Working memory of Encode; one per thread, reusable, empty at first.
  class Scratch {
    friend class BytePairMerger;
    struct Symbol {
      TokenId token;
      uint32_t previous;
      uint32_t next;
    };
    struct Candidate {
      uint32_t rank;
      uint32_t left;  // index of the left symbol
      TokenId left_token;
      TokenId right_token;
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
    RankQueue queue_;
  };

  // From here on a heap of all pairs no longer fits the caches, and a queue by rank pays for its tables.
  static constexpr size_t kHugePiece = 8192;

  // `byte_tokens` [256]: the token of each byte. `merges` in rank order, ids below 2^20, fewer than 2^20, no
  // pair twice. `huge_piece`: the bytes from which a piece is huge.
  BytePairMerger(std::span<const TokenId> byte_tokens, std::span<const Merge> merges,
                 size_t huge_piece = kHugePiece);

  // Appends the tokens of `piece` (fewer than 2^32 - 1 bytes).
  void Encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;

 private:
  uint32_t Rank(TokenId left, TokenId right) const;
  void EncodeShort(std::string_view piece, std::vector<TokenId>& ids) const;
  void EncodeLong(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;
  void EncodeHuge(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;
  void LinkBytes(std::string_view piece, Scratch& scratch) const;
  void PushCandidate(uint32_t left, Scratch& scratch) const;

  size_t huge_piece_;
  std::vector<TokenId> byte_tokens_;  // [256]
  std::vector<TokenId> results_;      // by rank
  // Open addressing, linear probing, at most half full: left (20 bits), right (20 bits), rank (24 bits).
  std::vector<uint64_t> slots_;
  int shift_ = 0;  // 64 - log2(slots_.size())
};

}  // namespace millrace::text
