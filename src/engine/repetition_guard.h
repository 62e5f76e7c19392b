#pragma once

#include <array>
#include <cstdint>

#include "base/ids.h"

namespace millrace::engine {

// The longest phrase, in tokens, whose repetition a RepetitionGuard sees.
inline constexpr int64_t kMaxPhraseTokens = 256;
// The least limit of a guard: it has seen every phrase at least four times.
inline constexpr int64_t kMinRepetitionLimitTokens = 4 * kMaxPhraseTokens;

// Notices that a sequence does nothing any more but repeat a phrase: that its last `limit_tokens` tokens have
// a period of at most kMaxPhraseTokens. Exact: a single token that breaks the pattern starts the count again,
// so that a table with changing numbers or a list that counts is never meant.
//
// For each period the guard keeps how long the run of tokens is that equal the one a period before. A token
// costs a step for each time that it occurs among the last kMaxPhraseTokens: a few in ordinary text, where
// that takes some 15 ns; at most kMaxPhraseTokens, about 1 us. Memory is fixed.
class RepetitionGuard {
 public:
  // `limit_tokens` >= kMinRepetitionLimitTokens, or 0: never reports anything.
  explicit RepetitionGuard(int64_t limit_tokens);

  // Forgets everything: a new sequence.
  void Start();
  // The sequence's next generated token (ids >= 0).
  void OnToken(TokenId token);
  // The last limit_tokens tokens are a phrase repeated.
  bool repeats() const { return repeats_; }

 private:
  // The place of a token in the sequence, counted from 1; 0: none.
  using Place = uint32_t;

  struct Recent {
    TokenId token = 0;
    Place earlier = 0;  // the place before this one whose token has the same hash
  };
  struct Run {
    uint32_t tokens = 0;  // each equal to the one a period before
    Place last = 0;       // where the run ends
  };

  uint32_t limit_tokens_;
  Place place_ = 0;  // of the latest token
  bool repeats_ = false;
  std::array<Recent, kMaxPhraseTokens> recent_;  // [place % size]
  std::array<Place, kMaxPhraseTokens> latest_;   // [hash of a token]: the latest place
  std::array<Run, kMaxPhraseTokens + 1> runs_;   // [period]
};

}  // namespace millrace::engine
