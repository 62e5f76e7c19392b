#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/api_error.h"
#include "api/chat_defaults.h"
#include "api/generation_job.h"
#include "text/chat_prompt.h"

namespace millrace::api {

// The facts about this server that a request is prepared with. Immutable; any thread.
struct ServedModel {
  const text::ChatEncoder& encoder;  // outlives it
  std::vector<std::string> names;    // public ones; the first is the default
  std::string system_fingerprint;
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;
  int64_t default_max_tokens = 0;  // of requests that name no limit; 0: the rest of the context
  int64_t created = 0;             // seconds since 1970
  ChatDefaults chat_defaults = {};

  // True for the public names and for those that clients of V4.1 are known to send.
  bool Knows(std::string_view name) const;
};

// What the transport knows of a request.
struct RequestOrigin {
  std::string request_id;
  std::chrono::steady_clock::time_point arrival;
};

// Decode the body, encode the prompt, bound the output by the context: all of a request's work that needs no
// engine. Takes time in proportion to the body, so not for an I/O thread. Any thread.
std::variant<PreparedGeneration, ApiError> PrepareChat(const ServedModel& model, const RequestOrigin& origin,
                                                       std::string_view body);
std::variant<PreparedGeneration, ApiError> PrepareCompletion(const ServedModel& model,
                                                             const RequestOrigin& origin,
                                                             std::string_view body);

// The ids of a raw prompt. Text is trusted: control strings in it are control tokens, and it begins with BOS
// however it came.
std::vector<TokenId> EncodeRaw(const text::ChatEncoder& encoder, const Prompt& prompt);

// 32 hexadecimal digits that no other call returns. Any thread.
std::string RandomHexId();

}  // namespace millrace::api
