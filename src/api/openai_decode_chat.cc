#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "api/declare_tools.h"
#include "api/json_body.h"
#include "api/openai_decode.h"
#include "api/openai_decode_messages.h"
#include "api/openai_output_options.h"
#include "api/thinking_options.h"

namespace millrace::api {
namespace {

// "tools": [{"type": "function", "function": {...}, "namespace": ...}]
void ReadTools(FieldReader& body, text::ChatModel model, ChatCompletionRequest& request) {
  const text::OrderedJson::Array* const tools = body.Array("tools");
  if (tools == nullptr) return;
  ToolList list(model, body.error());
  for (size_t i = 0; i < tools->size() && !body.error().set(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    if ((*tools)[i].if_object() == nullptr) {
      return FailType(body.error(), path, (*tools)[i], "an object with type and function");
    }
    FieldReader tool((*tools)[i], path, body.error());
    const std::optional<std::string> type = tool.String("type");
    if (body.error().set()) return;
    if (type && *type != "function") {
      return body.error().Set(ApiErrorKind::kUnsupportedField,
                              fmt::format("'{}' is \"{}\"; this server takes tools of type function only.",
                                          tool.PathOf("type"), type->substr(0, 100)),
                              tool.PathOf("type"));
    }
    const text::OrderedJson* const function = tool.Object("function");
    if (function == nullptr) {
      return body.error().Set(
          ApiErrorKind::kMissingField,
          fmt::format("'{}' is required: an object with name, description and parameters.",
                      tool.PathOf("function")),
          tool.PathOf("function"));
    }
    list.Add(*function, tool.Find("namespace"), tool.PathOf("function"));
  }
  list.MoveTo(request);
}

// "auto", "none", "required", or {"type": "function", "function": {"name"}}.
ToolChoice ReadToolChoice(FieldReader& body, text::ChatModel model) {
  constexpr std::string_view kExpected =
      "auto, none, required, or {\"type\": \"function\", \"function\": {\"name\": ...}}";
  using Kind = ToolChoice::Kind;
  const text::OrderedJson* const choice = body.Find("tool_choice");
  if (choice == nullptr) return {};
  if (const std::string* const word = choice->if_string()) {
    if (*word == "none") return {Kind::kNone, ""};
    if (*word == "required") return {Kind::kRequired, ""};
    if (*word != "auto") FailValue(body.error(), "tool_choice", *choice, kExpected);
    return {};
  }
  if (choice->if_object() == nullptr) {
    FailType(body.error(), "tool_choice", *choice, kExpected);
    return {};
  }
  FieldReader object(*choice, "tool_choice", body.error());
  const std::optional<std::string> type = object.String("type");
  const text::OrderedJson* const function = object.Object("function");
  if (body.error().set()) return {};
  if (type.value_or("function") != "function" || function == nullptr) {
    FailValue(body.error(), "tool_choice", *choice, kExpected);
    return {};
  }
  FieldReader named(*function, "tool_choice.function", body.error());
  const std::optional<std::string> name = named.String("name");
  if (!name) {
    FailValue(body.error(), "tool_choice.function", *function, "an object with the name of a tool");
    return {};
  }
  return NamedTool(*name, named.Find("namespace"), model, "tool_choice.function.name", body.error());
}

// logprobs: true switches them on, top_logprobs asks for alternatives.
std::optional<int> ReadLogprobs(FieldReader& body) {
  const bool wanted = body.Bool("logprobs").value_or(false);
  const std::optional<int64_t> top = body.Int("top_logprobs", 0, kMaxTopLogprobs);
  if (wanted) return static_cast<int>(top.value_or(0));
  if (top.value_or(0) > 0) {
    body.error().Set(ApiErrorKind::kInvalidValue,
                     "'top_logprobs' needs 'logprobs': true; set it or leave 'top_logprobs' out.",
                     "top_logprobs");
  }
  return std::nullopt;
}

// vLLM's names: continue_final_message, and add_generation_prompt as its opposite.
void ReadContinuation(FieldReader& body, ChatCompletionRequest& request) {
  bool& continues = request.chat.options.continue_final_message;
  const bool asked = body.Bool("continue_final_message").value_or(false);
  const bool opens_answer = body.Bool("add_generation_prompt").value_or(true);
  if (body.error().set()) return;
  const std::string_view field = asked ? "continue_final_message" : "messages";
  continues = continues || asked;
  if (!opens_answer && !continues) {
    body.error().Set(ApiErrorKind::kUnsupportedField,
                     "'add_generation_prompt': false would leave the model without a turn to speak. Leave it "
                     "out, or continue a message with 'continue_final_message'.",
                     "add_generation_prompt");
  }
  if (!continues) return;
  const text::ChatMessage& last = request.chat.messages.back();
  if (last.role != text::Role::kAssistant || !last.tool_calls.empty()) {
    body.error().Set(ApiErrorKind::kInvalidValue,
                     fmt::format("'{}' continues the last message, which must be the assistant's and without "
                                 "tool calls.",
                                 field),
                     std::string(field));
  }
}

std::variant<ChatCompletionRequest, ApiError> Decode(const text::OrderedJson& object,
                                                     const ChatDefaults& defaults, text::ChatModel model) {
  FirstError error;
  FieldReader body(object, "", error);
  ChatCompletionRequest request;
  RefuseUnsupportedFields(body, OpenAiEndpoint::kChat);
  request.chat.messages = ReadMessages(body, model, request.chat.options.continue_final_message);
  ReadTools(body, model, request);
  request.tool_choice = ReadToolChoice(body, model);
  request.parallel_tool_calls = body.Bool("parallel_tool_calls").value_or(true);
  request.output = ReadOutputOptions(body);
  request.output.logprobs = ReadLogprobs(body);
  ReadThinking(body, std::nullopt, defaults, request.chat.options);
  if (!error.set()) ReadContinuation(body, request);
  if (!error.set()) CheckToolChoice(request, "tool_choice", error);
  if (error.set()) return error.Take();
  return request;
}

}  // namespace

std::variant<ChatCompletionRequest, ApiError> DecodeChatRequest(std::string_view body,
                                                                const ChatDefaults& defaults,
                                                                text::ChatModel model) {
  auto parsed = ParseJsonBody(body);
  if (ApiError* const error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  return Decode(std::get<text::OrderedJson>(parsed), defaults, model);
}

}  // namespace millrace::api
