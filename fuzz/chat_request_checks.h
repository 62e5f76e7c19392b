#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <variant>

#include "api/api_error.h"
#include "api/requests.h"
#include "base/check.h"
#include "formats/tokenizer_json.h"
#include "text/chat_prompt.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

// What every decoder of conversations promises, whatever its dialect; for the fuzz targets.

namespace millrace::fuzz {

inline constexpr const char* kControlTokens[] = {"<｜begin▁of▁sentence｜>",
                                                 "<｜end▁of▁sentence｜>",
                                                 "<｜System｜>",
                                                 "<｜User｜>",
                                                 "<｜Assistant｜>",
                                                 "<think>",
                                                 "</think>",
                                                 "｜DSML｜",
                                                 "<｜latest_reminder｜>"};

// The 256 bytes and the control tokens of the encoding.
inline text::Tokenizer BytesTokenizer() {
  formats::TokenizerData data;
  for (int byte = 0; byte < 256; ++byte)
    data.tokens.push_back(formats::ByteLevelEncode(std::string(1, static_cast<char>(byte))));
  for (const char* name : kControlTokens) {
    data.added_tokens.push_back({.id = static_cast<TokenId>(data.tokens.size()), .content = name});
    data.tokens.emplace_back(name);
  }
  auto tokenizer = text::Tokenizer::Build(std::move(data));
  MILLRACE_CHECK(tokenizer.ok(), "the small vocabulary is complete");
  return std::move(tokenizer).value();
}

inline void CheckMessage(const text::ChatMessage& message) {
  MILLRACE_CHECK(text::IsUtf8(message.content.Text()) && text::IsUtf8(message.reasoning), "message text");
  MILLRACE_CHECK(message.tool_calls.empty() || message.role == text::Role::kAssistant, "who calls");
  for (const text::ToolCall& call : message.tool_calls)
    MILLRACE_CHECK(text::IsUtf8(call.name) && text::IsUtf8(call.id) && text::IsUtf8(call.arguments), "call");
}

inline void CheckTools(const api::ChatCompletionRequest& request) {
  using Kind = api::ToolChoice::Kind;
  MILLRACE_CHECK(request.chat.tools.empty() == (request.tools == nullptr), "tools in one place only");
  const api::ToolChoice& choice = request.tool_choice;
  if (choice.kind == Kind::kRequired) MILLRACE_CHECK(request.tools != nullptr, "a call without tools");
  if (choice.kind == Kind::kNamed) MILLRACE_CHECK(request.tools->Declares(choice.name), "not declared");
  for (const text::ToolDeclaration& tool : request.chat.tools) {
    MILLRACE_CHECK(request.tools->schemas()->Find(tool.name) != nullptr, "unknown to the parser");
    MILLRACE_CHECK(!request.tools->ClientName(tool.name).name.empty(), "without a name");
  }
}

// User tokens come from turns alone: at most one for each message, and one for each call's results.
inline void CheckPrompt(const text::ChatEncoder& encoder, const api::ChatCompletionRequest& request) {
  const Result<text::ChatPrompt> prompt = encoder.Render(request.chat);
  if (!prompt.ok()) {
    MILLRACE_CHECK(prompt.error().code() == ErrorCode::kInvalidArgument, "the client's fault");
    return;
  }
  size_t users = 0;
  for (const TokenId id : encoder.Encode(*prompt)) {
    MILLRACE_CHECK(id >= 0 && id < encoder.tokenizer().vocab_size(), "an id of the vocabulary");
    users += id == encoder.control_ids().user;
  }
  MILLRACE_CHECK(users <= request.chat.messages.size(), "a message forged a turn");
}

// A client can read it.
inline void CheckError(const api::ApiError& error) {
  MILLRACE_CHECK(error.status() >= 400 && error.status() < 500, "a body is the client's fault");
  MILLRACE_CHECK(!error.message.empty() && error.message.size() < 2000, "says nothing, or echoes");
  MILLRACE_CHECK(text::IsUtf8(api::ErrorJson(error)), "an error object that is not UTF-8");
}

// Keeps its promises and renders to tokens.
inline void CheckRequest(const api::ChatCompletionRequest& request, text::ChatModel model) {
  static const text::Tokenizer tokenizer = BytesTokenizer();
  for (const text::ChatMessage& message : request.chat.messages) CheckMessage(message);
  CheckTools(request);
  const Result<text::ChatEncoder> encoder = text::ChatEncoder::Create(tokenizer, model);
  MILLRACE_CHECK(encoder.ok(), "all control tokens are there");
  CheckPrompt(*encoder, request);
}

}  // namespace millrace::fuzz
