#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/api_error.h"
#include "api/chat_defaults.h"
#include "api/dialect.h"
#include "api/generation_job.h"
#include "api/replay_store.h"
#include "api/requests.h"
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
  ReplayStore* replays = nullptr;  // outlives it; nullptr: nothing is remembered
  ChatDefaults chat_defaults = {};

  // True for the public names and for those that clients of V4.1 are known to send.
  bool Knows(std::string_view name) const;
};

// What the transport knows of a request.
struct RequestOrigin {
  std::string request_id;
  std::chrono::steady_clock::time_point arrival;
  Dialect dialect = Dialect::kOpenAi;
  std::optional<std::chrono::steady_clock::time_point> deadline = {};  // of the answer's end
};

// A conversation as the model will read it.
struct EncodedChat {
  std::vector<TokenId> ids;
  bool starts_in_reasoning = false;  // the completion begins inside the reasoning
  ConversationHash conversation;     // all of it
  bool repeated_call_ids = false;    // as in text::ChatPrompt
};

// All functions here take time in proportion to the request, so they are not for an I/O thread. Any thread.

// The model as the client calls it.
const std::string& ModelName(const ServedModel& model, const OutputOptions& output);

// Whether `name`, as a client wrote it ("": none), is served here: the error that says so if it is not.
std::optional<ApiError> CheckModel(const ServedModel& model, const std::string& name);

// Renders and encodes, repeating answers that are remembered token for token; without a look at the length.
// Changes `request` to what is rendered.
std::variant<EncodedChat, ApiError> EncodeChat(const ServedModel& model, ChatCompletionRequest& request);

// What all dialects of chat share, behind their decoders: checks the model's name, encodes the prompt, bounds
// the output by the context, sets up what the answer must begin with.
std::variant<PreparedGeneration, ApiError> PrepareChatRequest(const ServedModel& model,
                                                              const RequestOrigin& origin,
                                                              ChatCompletionRequest request,
                                                              std::unique_ptr<AnswerFormat> format);

// The same for prompts that are ids already; each must pass CheckPrompt. Without a format and without
// parsing.
PreparedGeneration PrepareSequences(const ServedModel& model, const RequestOrigin& origin,
                                    const OutputOptions& output, std::vector<std::vector<TokenId>> prompts);

// The error of a prompt that leaves no room for a token of answer, or has ids outside the vocabulary. `what`
// and `param` name it: "messages".
std::optional<ApiError> CheckPrompt(const ServedModel& model, const std::vector<TokenId>& ids,
                                    std::string_view what, std::string_view param);

}  // namespace millrace::api
