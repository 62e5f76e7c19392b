#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/byte_pair_merger.h"
#include "text/pair_ranks.h"
#include "text/token_trie.h"

namespace millrace::text {

// The same tokens as BytePairMerger's, without merging. It relies on every merge standing behind those that
// make its halves and on no two making the same token, as training leaves them. Then
//
// - merges take place in the order of their ranks, so what happens inside a token that stands at the end does
//   not depend on its neighbours: it is what happens to its bytes alone; and
// - tokens, each of which its own bytes alone become, are those of a text exactly when no two neighbours
//   merge across their border before that has happened on either side, which the two tokens alone decide.
//
// So a text has one such cut, and each of its beginnings has at most one: taking the longest token that fits
// the one before, and going back where none does, never comes to the same place twice. O(n) for n bytes.
// Immutable; const members may be called from any thread.
class MatchEncoder {
 public:
  // Working memory of Encode; one per thread, reusable, empty at first.
  class Scratch {
    friend class MatchEncoder;
    std::vector<uint64_t> dead_;  // bit i: no token behind byte i leads on
  };

  // Arguments as BytePairMerger's; nullopt where the merges are not as above, or too long or too many for the
  // memory that BytesFor plans.
  static std::optional<MatchEncoder> Build(std::span<const TokenId> byte_tokens,
                                           std::span<const Merge> merges);

  // What it holds for so many tokens, of three different beginnings each at most (TokenTrie).
  static uint64_t BytesFor(uint64_t n_tokens);

  // Appends the tokens of `piece` (fewer than 2^32 - 1 bytes).
  void Encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;

 private:
  // A byte, or 256 + the rank of the merge that makes it: of two halves the higher is the later.
  using Symbol = uint32_t;
  static constexpr Symbol kNone = ~Symbol{0};
  static constexpr Symbol kBytes = 256;

  struct Token {
    // Bits by hash of a symbol. `merging`: those that the symbols at the right end of this one, without
    // itself, merge with early enough to prevent it. `first`: the symbols at the left end, with itself. No
    // common bit: no merge.
    uint64_t merging = 0;
    uint64_t first = 0;
    TokenId id = 0;
    uint32_t length = 0;
    Symbol shorter = kNone;  // the longest that this one begins with
  };
  struct Halves {
    Symbol left = kNone;
    Symbol right = kNone;
  };
  // Which tokens cannot stand side by side.
  struct Borders {
    std::vector<Halves> halves;  // [symbols]
    PairRanks made;              // of two symbols that merge, the symbol they become

    // Whether two tokens, or parts of them at their border, merge before both are whole.
    bool MergesAcross(Symbol left, Symbol right) const;
    // The same, known that the whole ones do not.
    bool PartsMergeAcross(Symbol left, Symbol right) const;
  };
  struct Place {
    Symbol symbol = kNone;
    size_t end = 0;
    bool is_longest = false;  // of those that the text goes on with
  };
  using Ids = std::span<const TokenId>;

  MatchEncoder(Borders borders, std::vector<Token> tokens, TokenTrie trie);
  static std::optional<std::vector<Halves>> HalvesOf(Ids byte_tokens, std::span<const Merge> merges);
  static bool MeasureTokens(std::span<const Halves> halves, std::vector<Token>& tokens);
  static std::vector<bool> LearnMerges(Borders& borders, std::vector<Token>& tokens);
  static std::string Spell(std::span<const Halves> halves, std::span<const Token> tokens,
                           std::vector<std::string_view>& bytes);

  Place LongestBehind(std::string_view piece, size_t end) const;
  bool Fits(const Place& last, Symbol next) const;

  Borders borders_;
  std::vector<Token> tokens_;  // [symbols]
  TokenTrie trie_;
};

}  // namespace millrace::text
