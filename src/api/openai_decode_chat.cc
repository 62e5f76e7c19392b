#include <fmt/format.h>
#include <boost/json/array.hpp>

#include <array>
#include <charconv>

#include "api/json_body.h"
#include "api/openai_decode.h"
#include "api/openai_output_options.h"

namespace millrace::api {
namespace {

struct RoleName {
  std::string_view name;
  ChatRole role;
};

constexpr std::array<RoleName, 4> kRoles = {{
    {"system", ChatRole::kSystem},
    {"developer", ChatRole::kSystem},
    {"user", ChatRole::kUser},
    {"assistant", ChatRole::kAssistant},
}};

// Effort names of the API (chat-encoding.md, section 4); 0 is no thinking at all.
struct EffortName {
  std::string_view name;
  int effort;
};

constexpr int kNoThinking = 0;
constexpr int kDefaultEffort = 75;
constexpr std::string_view kEfforts =
    "none, minimal, low, medium, high, xhigh, max, or an integer between 1 and 100";

constexpr std::array<EffortName, 10> kEffortNames = {{
    {"none", kNoThinking},
    {"off", kNoThinking},
    {"disabled", kNoThinking},
    {"minimal", 50},
    {"low", 50},
    {"medium", 75},
    {"high", 75},
    {"xhigh", 75},
    {"max", 100},
    {"ultra", 100},
}};

std::optional<ChatRole> ReadRole(FieldReader& message) {
  constexpr std::string_view kAccepted = "system, developer, user or assistant";
  const boost::json::value* const role = message.Find("role");
  if (role == nullptr) {
    message.error().Set(ApiErrorKind::kMissingField,
                        fmt::format("'{}' is required: {}.", message.PathOf("role"), kAccepted),
                        message.PathOf("role"));
    return std::nullopt;
  }
  if (!role->is_string()) {
    FailType(message.error(), message.PathOf("role"), *role, kAccepted);
    return std::nullopt;
  }
  for (const RoleName& known : kRoles)
    if (std::string_view(role->get_string()) == known.name) return known.role;
  FailValue(message.error(), message.PathOf("role"), *role, kAccepted);
  return std::nullopt;
}

// One part of a content list. Only text: an image that is silently dropped is a wrong answer.
void AppendPart(const boost::json::value& part, const std::string& path, FirstError& error,
                std::string& text) {
  if (part.is_string()) {
    text += part.get_string();
    return;
  }
  if (!part.is_object()) return FailType(error, path, part, "an object {\"type\": \"text\", \"text\": ...}");
  FieldReader reader(part.get_object(), path, error);
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
  const boost::json::value* const content = message.Find("content");
  if (content == nullptr) return "";
  const std::string path = message.PathOf("content");
  if (content->is_string()) return std::string(content->get_string());
  std::string text;
  if (!content->is_array()) {
    FailType(message.error(), path, *content, "a string or an array of text parts");
    return text;
  }
  const boost::json::array& parts = content->get_array();
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
    const boost::json::value* const value = message.Find(key);
    const bool harmless = value == nullptr || (value->is_array() && value->get_array().empty()) ||
                          (value->is_bool() && !value->get_bool());
    if (harmless) continue;
    message.error().Set(ApiErrorKind::kUnsupportedField,
                        fmt::format("'{}' is not supported by this server; messages are plain text turns.",
                                    message.PathOf(key)),
                        message.PathOf(key));
  }
}

ChatTurn ReadTurn(FieldReader& message) {
  ChatTurn turn;
  turn.role = ReadRole(message).value_or(ChatRole::kUser);
  RefuseUnsupportedMessageFields(message);
  turn.content = ReadContent(message);
  if (turn.role == ChatRole::kAssistant) {
    const std::optional<std::string> reasoning = message.String("reasoning_content");
    const std::optional<std::string> alias = message.String("reasoning");
    turn.reasoning = reasoning ? *reasoning : alias.value_or("");
  }
  return turn;
}

std::vector<ChatTurn> ReadTurns(FieldReader& body) {
  constexpr std::string_view kExpected = "an array of at least one message";
  std::vector<ChatTurn> turns;
  const boost::json::value* const messages = body.Find("messages");
  if (messages == nullptr) {
    body.error().Set(ApiErrorKind::kMissingField, fmt::format("'messages' is required: {}.", kExpected),
                     "messages");
    return turns;
  }
  if (!messages->is_array()) {
    FailType(body.error(), "messages", *messages, kExpected);
    return turns;
  }
  const boost::json::array& array = messages->get_array();
  if (array.empty()) FailValue(body.error(), "messages", *messages, kExpected);
  for (size_t i = 0; i < array.size() && !body.error().set(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    if (!array[i].is_object()) {
      FailType(body.error(), path, array[i], "an object with role and content");
      break;
    }
    FieldReader message(array[i].get_object(), path, body.error());
    turns.push_back(ReadTurn(message));
  }
  return turns;
}

// nullopt: not given, or an error that is recorded.
std::optional<int> ReadEffort(FieldReader& reader) {
  constexpr std::string_view kKey = "reasoning_effort";
  const boost::json::value* const value = reader.Find(kKey);
  if (value == nullptr) return std::nullopt;
  const std::string path = reader.PathOf(kKey);
  std::optional<int64_t> number = AsInt64(*value);
  if (value->is_string()) {
    const std::string_view text = value->get_string();
    for (const EffortName& known : kEffortNames)
      if (text == known.name) return known.effort;
    int64_t digits = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), digits);
    if (failure == std::errc() && end == text.data() + text.size()) number = digits;
  } else if (!number) {
    FailType(reader.error(), path, *value, kEfforts);
    return std::nullopt;
  }
  if (number && *number >= 1 && *number <= 100) return static_cast<int>(*number);
  FailValue(reader.error(), path, *value, kEfforts);
  return std::nullopt;
}

// {"type": "enabled" | "disabled" | "adaptive"}
std::optional<bool> ReadThinkingObject(FieldReader& body) {
  const boost::json::object* const object = body.Object("thinking");
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
void ReadThinking(FieldReader& body, ChatRequest& request) {
  std::optional<bool> thinking = ReadThinkingObject(body);
  std::optional<int> effort = ReadEffort(body);
  if (const boost::json::object* const object = body.Object("chat_template_kwargs")) {
    FieldReader kwargs(*object, "chat_template_kwargs", body.error());
    const std::optional<bool> by_thinking = kwargs.Bool("thinking");
    const std::optional<bool> by_enable = kwargs.Bool("enable_thinking");
    const std::optional<int> kwargs_effort = ReadEffort(kwargs);
    if (!thinking) thinking = by_thinking ? by_thinking : by_enable;
    if (!effort) effort = kwargs_effort;
  }
  const std::optional<bool> top_level = body.Bool("enable_thinking");
  if (!thinking) thinking = top_level;
  request.thinking = thinking.value_or(effort != kNoThinking);
  const bool has_effort = request.thinking && effort && *effort != kNoThinking;
  request.reasoning_effort = has_effort ? *effort : kDefaultEffort;
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

std::variant<ChatRequest, ApiError> Decode(const boost::json::object& object) {
  FirstError error;
  FieldReader body(object, "", error);
  ChatRequest request;
  RefuseUnsupportedFields(body);
  request.turns = ReadTurns(body);
  request.output = ReadOutputOptions(body);
  request.output.logprobs = ReadLogprobs(body);
  ReadThinking(body, request);
  if (error.set()) return error.Take();
  return request;
}

}  // namespace

std::variant<ChatRequest, ApiError> DecodeChatRequest(std::string_view body) {
  auto parsed = ParseJsonBody(body);
  if (ApiError* const error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  return Decode(std::get<boost::json::object>(parsed));
}

}  // namespace millrace::api
