#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>

#include "base/ids.h"

namespace millrace::engine {

// What a constraint may say of the next token. Views live until the constraint is called again.

// Any token: no constraint here.
struct AnyToken {};
// Any token but these; no ids at all is AnyToken.
struct AnyTokenBut {
  std::span<const TokenId> ids;
};
// One of these; at least one.
struct OneOfTokens {
  std::span<const TokenId> ids;
};
// One of the tokens whose bit is set: bit t % 64 of word t / 64 for token t; (vocab_size + 63) / 64 words.
struct OneOfMask {
  std::span<const uint64_t> words;
};
// These, in this order; at least one.
struct ForcedTokens {
  std::span<const TokenId> ids;
};
// No further token: the generation ends with FinishReason::kStop.
struct EndOfSequence {};

using NextToken = std::variant<AnyToken, AnyTokenBut, OneOfTokens, OneOfMask, ForcedTokens, EndOfSequence>;

// What the tokens of one sequence may be: a grammar, a forced prefix, a skeleton of tags. A function of the
// tokens generated so far and nothing else, or the same request would not give the same answer.
//
// Every sequence has an object of its own, a Clone() of the request's, so that one request may be submitted
// many times (`n` choices). The engine calls it on its thread only, between two steps of the model, while all
// sequences wait: calls take microseconds.
//
// Forced tokens are generated tokens like any other: they count, they are reported, they end the sequence
// when they are stop tokens or the last that max_tokens allows. A run of them goes through the model in one
// piece. A constraint goes before SamplingParams::min_tokens where both cannot hold.
//
// What cannot be followed (an id outside the vocabulary, a set without a token, a mask of the wrong length,
// an exception) ends the request with FinishReason::kError.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // A constraint for one sequence, at its beginning: nothing generated. Any thread; the clone shares nothing
  // that changes.
  virtual std::unique_ptr<TokenConstraint> Clone() const = 0;

  // `token` was generated, sampled or forced. Every token of the sequence comes here once, in order; those of
  // the prompt do not.
  virtual void OnToken(TokenId token) = 0;

  // What may come next. Asked once before the first token and once after each, unless the sequence has ended.
  // Within a forced run it is not always asked; where it is, it answers with the rest of the run.
  virtual NextToken Next() = 0;
};

}  // namespace millrace::engine
