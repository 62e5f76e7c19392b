#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "api/answer_format.h"

namespace millrace::api {

// What decides how much an answer may take beside what the plan has for every running sequence.
struct AnswerShape {
  std::vector<int64_t> limits;  // of the tokens of each prompt's choices
  int choices_per_prompt = 1;
  bool stream = false;
  std::optional<int> logprobs;  // alternatives of each token
  FormatMemory format;
  uint64_t fixed_bytes = 0;               // of the request, as long as it is there
  uint64_t fixed_bytes_per_sequence = 0;  // and of each of its sequences

  size_t sequences() const { return limits.size() * static_cast<size_t>(choices_per_prompt); }
  int64_t longest() const;  // of one sequence, in tokens; 0 without prompts
  uint64_t tokens() const;  // of all sequences
};

// The most that is to be reserved for an answer before its first token, so that it can be held to its end.
struct AnswerNeeds {
  uint64_t fixed_bytes = 0;
  uint64_t bytes_per_token = 0;  // of every sequence
};
AnswerNeeds NeedsOf(const AnswerShape& shape);
// Of it, what the plan has for every request (kAnswerBytesPerRequest), and what is to be reserved.
uint64_t PlannedBytes(const AnswerShape& shape);
uint64_t BytesToReserve(const AnswerShape& shape);

// What the log-probabilities of a token take until its answer is sent, those of `delta`'s tokens. Of texts
// that are longer than usual more than NeedsOf has set aside.
uint64_t LogprobBytes(const TextDelta& delta, const AnswerShape& shape);
// What its text takes meanwhile.
uint64_t TextBytes(const TextDelta& delta);

}  // namespace millrace::api
