#include "api/responses_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/field_reader.h"
#include "api/json_body.h"
#include "api/json_object_text.h"
#include "api/openai_output_options.h"
#include "api/responses_input.h"
#include "api/responses_tools.h"
#include "api/thinking_options.h"

namespace millrace::api {
namespace {

struct RefusedField {
  std::string_view key;
  std::string_view remedy;
};

// Fields that ask for a server which remembers: to leave them out would answer another conversation.
constexpr RefusedField kRefused[] = {
    {"previous_response_id", "Send the whole conversation as 'input'."},
    {"conversation", "Send the whole conversation as 'input'."},
    {"prompt", "Send the prompt's text as 'instructions' and 'input'."},
};

void RefuseWhatNeedsAStore(FieldReader& body) {
  for (const RefusedField& field : kRefused) {
    if (body.Find(field.key) == nullptr) continue;
    body.error().Set(
        ApiErrorKind::kUnsupportedField,
        fmt::format("'{}' is not supported: this server stores no responses. {}", field.key, field.remedy),
        std::string(field.key));
  }
  if (body.Bool("background").value_or(false)) {
    body.error().Set(
        ApiErrorKind::kUnsupportedField,
        "'background': true is not supported: this server stores no responses. Stream the answer, "
        "or wait for it.",
        "background");
  }
}

// "include": what the client wants to see beside the answer. Unknown wishes are for hosted tools.
bool Includes(FieldReader& body, std::string_view what) {
  const text::OrderedJson::Array* const include = body.Array("include");
  return include != nullptr && std::ranges::any_of(*include, [&](const text::OrderedJson& item) {
           return item.if_string() != nullptr && *item.if_string() == what;
         });
}

// "text": {"format": ..., "verbosity": ...}; the latter is a hint that the model has no words for.
void CheckTextFormat(FieldReader& body) {
  const text::OrderedJson* const config = body.Object("text");
  if (config == nullptr) return;
  FieldReader reader(*config, "text", body.error());
  const text::OrderedJson* const format = reader.Object("format");
  if (format == nullptr) return;
  FieldReader fields(*format, "text.format", body.error());
  const std::optional<std::string> type = fields.String("type");
  if (body.error().set() || type == "text") return;
  body.error().Set(
      ApiErrorKind::kUnsupportedField,
      fmt::format(
          "'text.format.type' is {}; this server answers in format \"text\" only. Ask for JSON in the "
          "instructions, or through a tool.",
          type ? "\"" + type->substr(0, 100) + "\"" : "missing"),
      "text.format.type");
}

std::optional<text::ReasoningMode> ReadReasoningEffort(FieldReader& body) {
  const text::OrderedJson* const reasoning = body.Object("reasoning");
  if (reasoning == nullptr) return std::nullopt;
  FieldReader reader(*reasoning, "reasoning", body.error());
  return ReadEffort(reader, "effort");
}

OutputOptions ReadOutput(FieldReader& body) {
  OutputOptions output = ReadOutputOptions(body);
  output.limit_field = "max_output_tokens";
  if (const auto limit = body.Int("max_output_tokens", 1, std::numeric_limits<int64_t>::max()))
    output.max_tokens = *limit;
  const int top_logprobs = static_cast<int>(body.Int("top_logprobs", 0, kMaxTopLogprobs).value_or(0));
  if (top_logprobs > 0 || Includes(body, "message.output_text.logprobs")) output.logprobs = top_logprobs;
  output.n = 1;  // a field of the other endpoints
  return output;
}

// `otherwise` is JSON, for a field that the client left out.
std::string Repeated(FieldReader& body, std::string_view key, std::string_view otherwise) {
  const text::OrderedJson* const value = body.Find(key);
  return value != nullptr ? text::PythonJson(*value) : std::string(otherwise);
}

// Every member that OpenAI's types ask for.
std::string Echo(FieldReader& body, const ChatCompletionRequest& request) {
  JsonObjectText echo;
  echo.Bool("background", false);
  for (const std::string_view key :
       {"instructions", "max_output_tokens", "prompt_cache_key", "safety_identifier"})
    echo.Json(key, Repeated(body, key, "null"));
  echo.Json("metadata", Repeated(body, "metadata", "{}"));
  echo.Bool("parallel_tool_calls", request.parallel_tool_calls);
  echo.Null("previous_response_id");
  echo.Json("reasoning", Repeated(body, "reasoning", R"({"effort":null,"summary":null})"));
  echo.Text("service_tier", "default");
  echo.Bool("store", false);
  echo.Json("temperature", Repeated(body, "temperature", "1"));
  echo.Json("text", Repeated(body, "text", R"({"format":{"type":"text"}})"));
  echo.Json("tool_choice", Repeated(body, "tool_choice", R"("auto")"));
  echo.Json("tools", Repeated(body, "tools", "[]"));
  echo.Int("top_logprobs", request.output.logprobs.value_or(0));
  echo.Json("top_p", Repeated(body, "top_p", "1"));
  echo.Text("truncation", "disabled");
  return echo.Members();
}

std::variant<ResponsesRequest, ApiError> Decode(const text::OrderedJson& object, const ChatDefaults& defaults,
                                                text::ChatModel model) {
  FirstError error;
  FieldReader body(object, "", error);
  ResponsesRequest request;
  ChatCompletionRequest& chat = request.chat;
  RefuseWhatNeedsAStore(body);
  RefuseUnsupportedFields(body, OpenAiEndpoint::kChat);
  CheckTextFormat(body);
  chat.chat.messages = ReadResponsesInput(body, model);
  ReadResponsesTools(body, model, request);
  chat.parallel_tool_calls = body.Bool("parallel_tool_calls").value_or(true);
  chat.output = ReadOutput(body);
  ReadThinking(body, ReadReasoningEffort(body), defaults, chat.chat.options);
  request.seal_reasoning = Includes(body, "reasoning.encrypted_content");
  if (error.set()) return error.Take();
  request.echo = Echo(body, chat);
  return request;
}

}  // namespace

std::variant<ResponsesRequest, ApiError> DecodeResponsesRequest(std::string_view body,
                                                                const ChatDefaults& defaults,
                                                                text::ChatModel model) {
  auto parsed = ParseJsonBody(body);
  if (ApiError* const error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  return Decode(std::get<text::OrderedJson>(parsed), defaults, model);
}

}  // namespace millrace::api
