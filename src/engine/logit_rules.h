#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/request.h"
#include "engine/token_constraint.h"
#include "engine/token_counts.h"

namespace millrace::engine {

// What one sequence's past says of its next token; all of it optional.
struct DrawContext {
  const TokenCounts* counts = nullptr;  // set when UsesPenalties(sampling)
  // Tokens that would end the generation before min_tokens.
  std::span<const TokenId> withheld = {};
  NextToken allowed = AnyToken{};  // not EndOfSequence: there is no draw then
};

// kInvalidArgument when a constraint's answer cannot be followed: an id outside the vocabulary, no id at all,
// a mask of the wrong length.
Status CheckFollowable(const NextToken& next, int64_t vocab_size);

// Changes logits as a request asks. One thread; scratch is allocated at construction.
//
// In vLLM's order: first what may not be chosen (constraint, then `withheld`) becomes -inf; then logit_bias
// is added; then the penalties: repetition, frequency, presence. What cannot be chosen stays so; other
// results are kept finite. No step depends on anything but the row, the request and the sequence's own
// tokens.
class LogitRules {
 public:
  explicit LogitRules(int64_t vocab_size);

  static uint64_t ScratchBytes(int64_t vocab_size);

  // Whether a request's logits are changed at all for this draw: if not, no pass over them is needed.
  static bool Change(const SamplingParams& sampling, const DrawContext& context);

  // `logits` [vocab_size], finite or -inf; `context.allowed` is followable. The changed row, valid until the
  // next call; at least one token can be chosen in it. Where nothing but `withheld` tokens is left, they are
  // not withheld. kInvalidArgument when the constraint leaves nothing.
  Result<std::span<const float>> Apply(std::span<const float> logits, const SamplingParams& sampling,
                                       const DrawContext& context);

 private:
  void Restrict(const NextToken& allowed);
  bool AnyChoosable() const;

  std::vector<float> row_;       // [vocab_size]
  std::vector<uint64_t> words_;  // a mask of the vocabulary
};

}  // namespace millrace::engine
