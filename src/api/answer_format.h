#pragma once

#include <span>
#include <string>

#include "api/api_error.h"
#include "api/generation.h"

namespace millrace::api {

// One choice of a finished answer.
struct FinishedChoice {
  TextDelta text;  // all of it
  engine::FinishReason reason{};
};

// Writes the answer to one request in one dialect: whole, or as server-sent events. Called on one thread.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // The body of a non-streaming answer, choices by index.
  virtual std::string Whole(std::span<const FinishedChoice> choices, const TokenUsage& usage) = 0;

  // Each returns complete events.
  virtual std::string Delta(size_t choice, const TextDelta& delta) = 0;
  // `rest`: what the end released; may be empty.
  virtual std::string ChoiceEnd(size_t choice, const TextDelta& rest, engine::FinishReason reason) = 0;
  virtual std::string StreamEnd(const TokenUsage& usage) = 0;
  virtual std::string StreamError(const ApiError& error) = 0;
  // A comment that keeps a silent connection open.
  virtual std::string Filler() = 0;
};

}  // namespace millrace::api
