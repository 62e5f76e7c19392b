#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace millrace::engine {

// How often each token of the vocabulary stands in one sequence: what penalties are computed from. 4 bytes a
// token of the vocabulary, allocated at construction, reused from sequence to sequence.
class TokenCounts {
 public:
  explicit TokenCounts(int64_t vocab_size);

  static uint64_t Bytes(int64_t vocab_size);

  // Forgets everything and marks the tokens of `prompt`. All ids here and below are in the vocabulary.
  void Start(std::span<const TokenId> prompt);
  void OnGenerated(TokenId token) { entries_[static_cast<size_t>(token)] += 2; }

  // In the prompt or generated.
  bool Occurs(TokenId token) const { return entries_[static_cast<size_t>(token)] != 0; }
  // Times generated.
  uint32_t Generated(TokenId token) const { return entries_[static_cast<size_t>(token)] >> 1; }

 private:
  std::vector<uint32_t> entries_;  // [vocab_size]: twice the times generated, plus 1 when in the prompt
};

}  // namespace millrace::engine
