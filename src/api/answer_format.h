#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "api/api_error.h"
#include "api/finished_choice.h"
#include "api/generation.h"

namespace millrace::api {

// What a format takes of memory beside the choices of an answer.
struct FormatMemory {
  uint64_t fixed_bytes = 0;  // whatever the answer becomes
  int copies = 1;  // of the answer's log-probabilities, that are there at once when its end is written
  int text_copies =
      3;  // of the answer's text, each with as much as a string holds ahead, while its end is written
  bool keeps_stream = false;  // what was streamed is kept, because its end says it again
};

// Writes the answer to one request in one dialect: whole, or as server-sent events. Called on one thread.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  virtual FormatMemory memory(bool /*stream*/) const { return {}; }

  // The body of a non-streaming answer, choices by index.
  virtual std::string Whole(std::span<const FinishedChoice> choices, const TokenUsage& usage) = 0;

  // A stream: StreamBegin, deltas and the ends of choices, and then StreamEnd or StreamError. Each returns
  // complete events, or nothing.

  // As soon as the engine has the request, long before its prompt is computed.
  virtual std::string StreamBegin(int64_t prompt_tokens) = 0;
  virtual std::string Delta(size_t choice, const TextDelta& delta) = 0;
  // `rest`: what the end released; may be empty.
  virtual std::string ChoiceEnd(size_t choice, const TextDelta& rest, const AnswerEnd& end) = 0;
  virtual std::string StreamEnd(const TokenUsage& usage) = 0;
  virtual std::string StreamError(const ApiError& error) = 0;
  // The same within a few KiB, for a stream that has no room for more.
  virtual std::string ShortStreamError(const ApiError& error) { return StreamError(error); }
  // Keeps a silent connection open; asked each time that nothing was written for the keep-alive interval.
  virtual std::string Filler() = 0;
};

}  // namespace millrace::api
