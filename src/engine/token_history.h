#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "engine/repetition_guard.h"
#include "engine/request.h"
#include "engine/token_counts.h"

namespace millrace::engine {

// What an engine remembers of one sequence's tokens: counts for its penalties, and the repetition guard. Of
// fixed size, made once for each slot and reused. What a request does not use costs nothing.
class TokenHistory {
 public:
  TokenHistory(int64_t vocab_size, int64_t repetition_limit_tokens)
      : counts_(vocab_size), guard_(repetition_limit_tokens) {}

  static uint64_t Bytes(int64_t vocab_size) { return TokenCounts::Bytes(vocab_size) + sizeof(TokenHistory); }

  // Forgets the sequence before and begins one of a request.
  void Start(std::span<const TokenId> prompt, const SamplingParams& sampling);
  void OnToken(TokenId token);

  // nullptr for a request without penalties.
  const TokenCounts* counts() const { return counting_ ? &counts_ : nullptr; }
  // The sequence is to end because it does nothing but repeat itself.
  bool repeats() const { return guarding_ && guard_.repeats(); }

 private:
  TokenCounts counts_;
  RepetitionGuard guard_;
  bool counting_ = false;
  bool guarding_ = false;
};

}  // namespace millrace::engine
