#include "api/openai_decode_messages.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "api/message_fields.h"

namespace millrace::api {
namespace {

struct RoleName {
  std::string_view name;
  text::Role role;
};

constexpr std::array<RoleName, 6> kRoles = {{
    {"system", text::Role::kSystem},
    {"developer", text::Role::kDeveloper},
    {"user", text::Role::kUser},
    {"assistant", text::Role::kAssistant},
    {"tool", text::Role::kTool},
    {"latest_reminder", text::Role::kLatestReminder},
}};

std::optional<text::Role> ReadRole(FieldReader& message) {
  constexpr std::string_view kAccepted = "system, developer, user, assistant, tool or latest_reminder";
  const text::OrderedJson* const role = message.Find("role");
  if (role == nullptr) {
    FailMissing(message, "role", kAccepted);
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

// What vLLM's and OpenRouter's clients send back: a list of {"text"}.
std::string ReadReasoningDetails(FieldReader& message) {
  std::string reasoning;
  const text::OrderedJson::Array* const details = message.Array("reasoning_details");
  if (details == nullptr) return reasoning;
  for (size_t i = 0; i < details->size(); ++i) {
    FieldReader detail((*details)[i], fmt::format("{}[{}]", message.PathOf("reasoning_details"), i),
                       message.error());
    reasoning += detail.String("text").value_or("");
  }
  return reasoning;
}

std::string ReadReasoning(FieldReader& message) {
  const std::optional<std::string> reasoning = message.String("reasoning_content");
  const std::optional<std::string> alias = message.String("reasoning");
  const std::string details = ReadReasoningDetails(message);
  return reasoning ? *reasoning : alias.value_or(details);
}

text::ToolCall ReadCall(FieldReader& call, text::ChatModel model) {
  text::ToolCall read;
  const std::optional<std::string> type = call.String("type");
  if (type && *type != "function") {
    FailValue(call.error(), call.PathOf("type"), *call.Find("type"), "function");
    return read;
  }
  read.id = call.String("id").value_or("");
  const text::OrderedJson* const object = call.Object("function");
  if (object == nullptr) {
    if (!call.error().set()) FailMissing(call, "function", "an object with name and arguments");
    return read;
  }
  FieldReader function(*object, call.PathOf("function"), call.error());
  const text::OrderedJson* const apart = call.Find("namespace");
  read.name = ReadCallName(function, apart != nullptr ? apart : function.Find("namespace"), model);
  read.arguments = ReadCallArguments(function);
  return read;
}

std::vector<text::ToolCall> ReadCalls(FieldReader& message, text::ChatModel model) {
  std::vector<text::ToolCall> calls;
  const text::OrderedJson::Array* const list = message.Array("tool_calls");
  for (size_t i = 0; list != nullptr && i < list->size() && !message.error().set(); ++i) {
    const std::string path = fmt::format("{}[{}]", message.PathOf("tool_calls"), i);
    if ((*list)[i].if_object() == nullptr) {
      FailType(message.error(), path, (*list)[i], "an object with id, type and function");
      break;
    }
    FieldReader call((*list)[i], path, message.error());
    calls.push_back(ReadCall(call, model));
  }
  return calls;
}

// Fields of a message that say something which the prompt cannot show.
void RefuseUnsupportedMessageFields(FieldReader& message) {
  struct Refused {
    std::string_view key;
    std::string_view remedy;
  };
  constexpr std::array<Refused, 3> kRefused = {{
      {"function_call", "Send 'tool_calls' instead."},
      {"audio", "Send the words as 'content'."},
      {"images", "Describe them in 'content'."},
  }};
  for (const Refused& refused : kRefused) {
    const text::OrderedJson* const value = message.Find(refused.key);
    if (value == nullptr || (value->if_array() != nullptr && value->if_array()->empty())) continue;
    message.error().Set(
        ApiErrorKind::kUnsupportedField,
        fmt::format("'{}' is not supported by this server. {}", message.PathOf(refused.key), refused.remedy),
        message.PathOf(refused.key));
  }
}

text::ChatMessage ReadMessage(FieldReader& message, text::ChatModel model) {
  text::ChatMessage read;
  read.role = ReadRole(message).value_or(text::Role::kUser);
  RefuseUnsupportedMessageFields(message);
  read.content = ReadContent(message, "content");
  if (read.role == text::Role::kTool) read.tool_call_id = message.String("tool_call_id").value_or("");
  if (read.role != text::Role::kAssistant) return read;
  read.reasoning = ReadReasoning(message);
  read.tool_calls = ReadCalls(message, model);
  return read;
}

// "prefix": true is for the last message, and for the assistant's.
bool ReadPrefix(FieldReader& message, bool may_continue) {
  if (!message.Bool("prefix").value_or(false)) return false;
  if (!may_continue) {
    message.error().Set(ApiErrorKind::kInvalidValue,
                        fmt::format("'{}' continues a message; that must be the last and the assistant's.",
                                    message.PathOf("prefix")),
                        message.PathOf("prefix"));
  }
  return may_continue;
}

}  // namespace

std::vector<text::ChatMessage> ReadMessages(FieldReader& body, text::ChatModel model, bool& continue_final) {
  constexpr std::string_view kExpected = "an array of at least one message";
  std::vector<text::ChatMessage> messages;
  const text::OrderedJson* const field = body.Find("messages");
  if (field == nullptr) {
    FailMissing(body, "messages", kExpected);
    return messages;
  }
  const text::OrderedJson::Array* const list = field->if_array();
  if (list == nullptr) {
    FailType(body.error(), "messages", *field, kExpected);
    return messages;
  }
  if (list->empty()) FailValue(body.error(), "messages", *field, kExpected);
  for (size_t i = 0; i < list->size() && !body.error().set(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    if ((*list)[i].if_object() == nullptr) {
      FailType(body.error(), path, (*list)[i], "an object with role and content");
      break;
    }
    FieldReader message((*list)[i], path, body.error());
    messages.push_back(ReadMessage(message, model));
    const bool may_continue = i + 1 == list->size() && messages.back().role == text::Role::kAssistant;
    if (ReadPrefix(message, may_continue)) continue_final = true;
  }
  return messages;
}

}  // namespace millrace::api
