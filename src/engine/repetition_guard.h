#pragma once

#include <array>
#include <cstdint>

#include "base/ids.h"

namespace millrace::engine {

// The longest phrase, in tokens, whose repetition a RepetitionGuard sees.
inline constexpr int64_t kMaxPhraseTokens = 256;
// A phrase is only called repeated when it stands there at least this often.
inline constexpr int64_t kMinPhraseRepeats = 4;

// Notices that a sequence does nothing any more but repeat a phrase: that its last `limit_tokens` tokens have
// a period of at most min(kMaxPhraseTokens, limit_tokens / kMinPhraseRepeats). Exact: a single token that
// breaks the pattern starts the count again, so a table with changing numbers or a list that counts is never
// meant.
//
// For each period the guard keeps how long the run of tokens is that equal the one a period before. A token
// costs one comparison for each period, about 0.1 us in all, however long the sequence; memory is fixed.
class RepetitionGuard {
 public:
  // `limit_tokens` >= kMinPhraseRepeats, or 0: never reports anything.
  explicit RepetitionGuard(int64_t limit_tokens);

  // Forgets everything: a new sequence.
  void Start();
  // The sequence's next generated token (ids >= 0).
  void OnToken(TokenId token);
  // The last limit_tokens tokens are a phrase repeated.
  bool repeats() const { return repeats_; }

 private:
  static constexpr auto kSize = static_cast<size_t>(kMaxPhraseTokens);

  int64_t limit_tokens_;
  int64_t max_period_;
  // The last kSize tokens twice over, so that they lie in one piece wherever the oldest is: the i-th oldest
  // at oldest_ + i.
  std::array<TokenId, 2 * kSize> recent_;
  size_t oldest_ = 0;
  // [i]: the run of the period that reaches the i-th oldest token, kSize - i.
  std::array<uint32_t, kSize> run_tokens_;
  bool repeats_ = false;
};

}  // namespace millrace::engine
