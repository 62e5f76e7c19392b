#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "text/chat_message.h"

namespace millrace::api {

// The most alternatives a token may list (engine/request.h has the same; generation_job.cc holds them equal).
inline constexpr int kMaxTopLogprobs = 20;

// What any generation endpoint accepts about its output, whatever the dialect. Values are in range; what the
// client left out has the API's default.
struct OutputOptions {
  std::string model;                  // empty: the client named none
  std::optional<int64_t> max_tokens;  // reasoning included; nullopt: the server's default
  float temperature = 1.0f;
  float top_p = 1.0f;
  int32_t top_k = 0;  // 0: off
  float min_p = 0.0f;
  std::optional<uint64_t> seed;  // nullopt: a fresh one for each request
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  int n = 1;  // choices for each prompt
  bool stream = false;
  bool include_usage = false;   // a usage chunk at the end of a stream
  std::optional<int> logprobs;  // how many alternatives a token lists; nullopt: no logprobs
};

// A prompt as text, in which control strings are control tokens, or as ids, taken as they are.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  std::vector<Prompt> prompts;  // at least one
  bool echo = false;            // the prompt's text in front of each choice
  OutputOptions output;
};

struct ChatCompletionRequest {
  text::ChatRequest chat;  // at least one message
  OutputOptions output;
};

}  // namespace millrace::api
