#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "api/answer_format.h"

namespace millrace::api {

// What decides how much an answer may take beside what the plan has for every running sequence.
struct AnswerShape {
  size_t sequences = 1;  // choices of all prompts
  bool stream = false;
  std::optional<int> logprobs;  // alternatives of each token
  FormatMemory format;
  uint64_t fixed_bytes = 0;  // of the request, as long as it is there
};

// The most that is to be reserved for an answer before its first token, so that it can be held to its end.
struct AnswerNeeds {
  uint64_t fixed_bytes = 0;
  uint64_t bytes_per_token = 0;  // of every sequence
};
AnswerNeeds NeedsOf(const AnswerShape& shape);

// What the log-probabilities of a token take until its answer is sent, those of `delta`'s tokens. Of texts
// that are longer than usual more than NeedsOf has set aside.
uint64_t LogprobBytes(const TextDelta& delta, const AnswerShape& shape);
// What its text takes meanwhile.
uint64_t TextBytes(const TextDelta& delta);

}  // namespace millrace::api
