#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/pair_ranks.h"

namespace millrace::text {

// One rule: the neighbours `left` and `right` become `result`. Its rank is its place in the list.
struct Merge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId result = 0;
};

// Turns the bytes of one piece into tokens: starts with a token per byte and repeatedly joins the neighbours
// whose merge has the lowest rank, the leftmost on ties, until no neighbours have one. O(n log n) for a piece
// of n bytes. Takes any merges; MatchEncoder is many times as fast for those it takes. Immutable after
// construction; const members may be called from any thread.
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
  };

  // `byte_tokens` [256]: the token of each byte. `merges` in rank order, ids below 2^20, fewer than 2^20, no
  // pair twice.
  BytePairMerger(std::span<const TokenId> byte_tokens, std::span<const Merge> merges);

  // Appends the tokens of `piece` (fewer than 2^32 - 1 bytes).
  void Encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;

 private:
  void LinkBytes(std::string_view piece, Scratch& scratch) const;
  void PushCandidate(uint32_t left, Scratch& scratch) const;
  static void Join(uint32_t left, TokenId result, Scratch& scratch);

  std::vector<TokenId> byte_tokens_;  // [256]
  std::vector<TokenId> results_;      // by rank
  PairRanks ranks_;
};

}  // namespace millrace::text
