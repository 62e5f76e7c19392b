#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "api/generation.h"

namespace millrace::api {

// Log-probabilities as JSON text, appended to `out` token by token: as values of a JSON library they take a
// multiple of what they tell.

// As few digits as tell the float, always with a point or an exponent. JSON has no infinity and
// no NaN: the floor that stands for them is vLLM's.
void AppendLogprob(float logprob, std::string& out);

// Objects between commas: token, logprob, bytes, and top_logprobs with the same of each alternative.
void AppendScoredTokens(std::span<const ScoredToken> tokens, std::string& out);

// The most that AppendScoredTokens writes of one text, and of all that it is given.
inline constexpr uint64_t kMostNamesBytes = 64;
inline constexpr uint64_t kMostBytesPerByte = 10;
uint64_t MostLogprobsBytes(std::span<const ScoredToken> tokens);

}  // namespace millrace::api
