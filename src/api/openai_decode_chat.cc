#include <fmt/format.h>

#include <array>
#include <string>

#include "api/json_body.h"
#include "api/openai_decode.h"
#include "api/openai_output_options.h"
#include "text/chat_message.h"
#include "text/reasoning_effort.h"

namespace millrace::api {
namespace {

struct RoleName {
  std::string_view name;
  text::Role role;
};

constexpr std::array<RoleName, 4> kRoles = {{
    {"system", text::Role::kSystem},
    {"developer", text::Role::kDeveloper},
    {"user", text::Role::kUser},
    {"assistant", text::Role::kAssistant},
}};

std::optional<text::Role> ReadRole(FieldReader& message) {
  constexpr std::string_view kAccepted = "system, developer, user or assistant";
  const text::OrderedJson* const role = message.Find("role");
  if (role == nullptr) {
    message.error().Set(ApiErrorKind::kMissingField,
                        fmt::format("'{}' is required: {}.", message.PathOf("role"), kAccepted),
                        message.PathOf("role"));
    return std::nullopt;
  }
  if (role->if_string() == nullptr) {
    FailType(message.error(), message.PathOf("role"), *role, kAccepted);
    return std::nullopt;
  }
  for (const RoleName& known : kRoles)
    if (*role->if_string() == known.name) return known.role;
  FailValue(message.error(), message.PathOf("role"), *role, kAccepted);
  return std::nullopt;
}

// One part of a content list. Only text: an image that is silently dropped is a wrong answer.
void AppendPart(const text::OrderedJson& part, const std::string& path, FirstError& error,
                std::string& text) {
  if (part.if_string() != nullptr) {
    text += *part.if_string();
    return;
  }
  if (part.if_object() == nullptr)
    return FailType(error, path, part, "an object {\"type\": \"text\", \"text\": ...}");
  FieldReader reader(part, path, error);
  const std::optional<std::string> type = reader.String("type");
  if (error.set()) return;
  if (type != "text" && type != "input_text" && type != "output_text") {
    return error.Set(ApiErrorKind::kUnsupportedField,
                     fmt::format("'{}' is {}; this server takes content parts of type text only.",
                                 reader.PathOf("type"), type ? "\"" + *type + "\"" : "missing"),
                     reader.PathOf("type"));
  }
  const std::optional<std::string> part_text = reader.String("text");
  if (!part_text && !error.set()) {
    error.Set(ApiErrorKind::kMissingField,
              fmt::format("'{}' is required: the part's text.", reader.PathOf("text")),
              reader.PathOf("text"));
  }
  text += part_text.value_or("");
}

// A string, null, or text parts joined by a blank line (chat-encoding.md, section 8).
std::string ReadContent(FieldReader& message) {
  const text::OrderedJson* const content = message.Find("content");
  if (content == nullptr) return "";
  const std::string path = message.PathOf("content");
  if (content->if_string() != nullptr) return *content->if_string();
  std::string text;
  if (content->if_array() == nullptr) {
    FailType(message.error(), path, *content, "a string or an array of text parts");
    return text;
  }
  const text::OrderedJson::Array& parts = *content->if_array();
  for (size_t i = 0; i < parts.size() && !message.error().set(); ++i) {
    if (i > 0) text += "\n\n";
    AppendPart(parts[i], fmt::format("{}[{}]", path, i), message.error(), text);
  }
  return text;
}

void RefuseUnsupportedMessageFields(FieldReader& message) {
  constexpr std::array<std::string_view, 5> kKeys = {"tool_calls", "function_call", "audio", "images",
                                                     "prefix"};
  for (std::string_view key : kKeys) {
    const text::OrderedJson* const value = message.Find(key);
    const bool harmless = value == nullptr || (value->if_array() != nullptr && value->if_array()->empty()) ||
                          (value->if_bool() != nullptr && !*value->if_bool());
    if (harmless) continue;
    message.error().Set(ApiErrorKind::kUnsupportedField,
                        fmt::format("'{}' is not supported by this server; messages are plain text turns.",
                                    message.PathOf(key)),
                        message.PathOf(key));
  }
}

text::ChatMessage ReadMessage(FieldReader& message) {
  text::ChatMessage read;
  read.role = ReadRole(message).value_or(text::Role::kUser);
  RefuseUnsupportedMessageFields(message);
  read.content = ReadContent(message);
  if (read.role == text::Role::kAssistant) {
    const std::optional<std::string> reasoning = message.String("reasoning_content");
    const std::optional<std::string> alias = message.String("reasoning");
    read.reasoning = reasoning ? *reasoning : alias.value_or("");
  }
  return read;
}

std::vector<text::ChatMessage> ReadMessages(FieldReader& body) {
  constexpr std::string_view kExpected = "an array of at least one message";
  std::vector<text::ChatMessage> list;
  const text::OrderedJson* const messages = body.Find("messages");
  if (messages == nullptr) {
    body.error().Set(ApiErrorKind::kMissingField, fmt::format("'messages' is required: {}.", kExpected),
                     "messages");
    return list;
  }
  if (messages->if_array() == nullptr) {
    FailType(body.error(), "messages", *messages, kExpected);
    return list;
  }
  const text::OrderedJson::Array& array = *messages->if_array();
  if (array.empty()) FailValue(body.error(), "messages", *messages, kExpected);
  for (size_t i = 0; i < array.size() && !body.error().set(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    if (array[i].if_object() == nullptr) {
      FailType(body.error(), path, array[i], "an object with role and content");
      break;
    }
    FieldReader message(array[i], path, body.error());
    list.push_back(ReadMessage(message));
  }
  return list;
}

// nullopt: not given, or an error that is recorded.
std::optional<text::ReasoningMode> ReadEffort(FieldReader& reader) {
  constexpr std::string_view kKey = "reasoning_effort";
  constexpr std::string_view kAccepted =
      "none, minimal, low, medium, high, xhigh, max, or an integer between 1 and 100";
  const text::OrderedJson* const value = reader.Find(kKey);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = AsInt64(*value);
  if (!number && value->if_string() == nullptr) {
    FailType(reader.error(), reader.PathOf(kKey), *value, kAccepted);
    return std::nullopt;
  }
  const std::string name = number ? std::to_string(*number) : *value->if_string();
  const Result<text::ReasoningMode> mode = text::ParseReasoningEffort(name);
  if (mode.ok()) return *mode;
  FailValue(reader.error(), reader.PathOf(kKey), *value, kAccepted);
  return std::nullopt;
}

// {"type": "enabled" | "disabled" | "adaptive"}
std::optional<bool> ReadThinkingObject(FieldReader& body) {
  const text::OrderedJson* const object = body.Object("thinking");
  if (object == nullptr) return std::nullopt;
  FieldReader thinking(*object, "thinking", body.error());
  const std::optional<std::string> type = thinking.String("type");
  if (!type) return std::nullopt;
  if (*type == "disabled") return false;
  if (*type == "enabled" || *type == "adaptive") return true;
  FailValue(body.error(), "thinking.type", *thinking.Find("type"), "enabled, disabled or adaptive");
  return std::nullopt;
}

// Whether to think and how hard: thinking.type, then chat_template_kwargs, then enable_thinking; without any
// of them the effort decides (chat-encoding.md, section 4).
void ReadThinking(FieldReader& body, text::ChatOptions& options) {
  std::optional<bool> thinking = ReadThinkingObject(body);
  std::optional<text::ReasoningMode> effort = ReadEffort(body);
  if (const text::OrderedJson* const object = body.Object("chat_template_kwargs")) {
    FieldReader kwargs(*object, "chat_template_kwargs", body.error());
    const std::optional<bool> by_thinking = kwargs.Bool("thinking");
    const std::optional<bool> by_enable = kwargs.Bool("enable_thinking");
    const std::optional<text::ReasoningMode> kwargs_effort = ReadEffort(kwargs);
    if (!thinking) thinking = by_thinking ? by_thinking : by_enable;
    if (!effort) effort = kwargs_effort;
  }
  const std::optional<bool> top_level = body.Bool("enable_thinking");
  if (!thinking) thinking = top_level;
  options.thinking = thinking.value_or(!effort || effort->thinking);
  // An effort of "none" beside an explicit wish to think counts as not given.
  if (options.thinking && effort && effort->thinking) options.reasoning_effort = effort->effort;
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

std::variant<ChatCompletionRequest, ApiError> Decode(const text::OrderedJson& object) {
  FirstError error;
  FieldReader body(object, "", error);
  ChatCompletionRequest request;
  RefuseUnsupportedFields(body);
  request.chat.messages = ReadMessages(body);
  request.output = ReadOutputOptions(body);
  request.output.logprobs = ReadLogprobs(body);
  ReadThinking(body, request.chat.options);
  if (error.set()) return error.Take();
  return request;
}

}  // namespace

std::variant<ChatCompletionRequest, ApiError> DecodeChatRequest(std::string_view body) {
  auto parsed = ParseJsonBody(body);
  if (ApiError* const error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  return Decode(std::get<text::OrderedJson>(parsed));
}

}  // namespace millrace::api
