#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/request_tools.h"
#include "base/ids.h"
#include "text/chat_message.h"

namespace millrace::api {

// The most alternatives a token may list (engine/request.h has the same; generation_job.cc holds them equal).
inline constexpr int kMaxTopLogprobs = 20;

// What is added to a token's logit: from -100 to 100.
struct TokenBias {
  TokenId token = 0;
  float bias = 0;
};

// What any generation endpoint accepts about its output, whatever the dialect. Values are in range; what the
// client left out has the API's default.
struct OutputOptions {
  std::string model;                  // empty: the client named none
  std::optional<int64_t> max_tokens;  // reasoning included; nullopt: the server's default
  // What the client calls this and the number of alternatives.
  std::string_view limit_field = "max_tokens";
  std::string_view logprobs_field = "top_logprobs";
  float temperature = 1.0f;
  float top_p = 1.0f;
  int32_t top_k = 0;  // 0: off
  float min_p = 0.0f;
  float presence_penalty = 0.0f;    // -2 to 2
  float frequency_penalty = 0.0f;   // -2 to 2
  float repetition_penalty = 1.0f;  // above 0
  std::vector<TokenBias> logit_bias;
  int64_t min_tokens = 0;
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
  std::string suffix;           // what follows the text to be filled in; empty: nothing is known to follow
  bool echo = false;            // the prompt's text in front of each choice
  OutputOptions output;
};

// Whether the answer calls tools.
struct ToolChoice {
  enum class Kind : uint8_t {
    kAuto,
    kNone,      // no tool is shown, and what the model calls nevertheless is left out
    kRequired,  // at least one call
    kNamed,     // first a call to `name`
  };
  Kind kind = Kind::kAuto;
  std::string name;  // of kNamed: a declared tool, as written in the prompt
};

// A conversation to be answered: what each dialect's decoder makes of a body. What the model is shown is in
// `chat`; the rest says how to answer.
struct ChatCompletionRequest {
  text::ChatRequest chat;  // at least one message
  OutputOptions output;
  std::shared_ptr<const RequestTools> tools;  // nullptr: none are declared
  ToolChoice tool_choice;                     // kRequired and kNamed only with tools
  bool parallel_tool_calls = true;            // false: the answer ends after its first call
};

}  // namespace millrace::api
