#include "text/chat_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "formats/json.h"
#include "text/reasoning_effort.h"
#include "text/tool_declaration.h"

namespace millrace::text {
namespace {

template <typename T>
struct Named {
  std::string_view name;
  T value;
};

constexpr std::array<Named<Role>, 6> kRoles = {{
    {"system", Role::kSystem},
    {"user", Role::kUser},
    {"assistant", Role::kAssistant},
    {"tool", Role::kTool},
    {"latest_reminder", Role::kLatestReminder},
    {"developer", Role::kDeveloper},
}};

constexpr std::array<Named<Task>, kTaskCount> kTasks = {{
    {"action", Task::kAction},
    {"query", Task::kQuery},
    {"authority", Task::kAuthority},
    {"domain", Task::kDomain},
    {"title", Task::kTitle},
    {"read_url", Task::kReadUrl},
}};

// The names that the encoders themselves know; an endpoint knows more (ParseReasoningEffort).
constexpr std::array<Named<int>, 3> kEfforts = {{
    {"low", kLowEffort},
    {"high", kHighEffort},
    {"max", kMaxEffort},
}};

constexpr std::array<Named<ChatModel>, 3> kModels = {{
    {"v41", ChatModel::kV41},
    {"v4.1", ChatModel::kV41},
    {"v4", ChatModel::kV4},
}};

Error Wrong(std::string_view field, const OrderedJson& value, std::string_view expected) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("'{}' is {}, expected {}", field, formats::Clipped(PythonJson(value)), expected));
}

// nullptr when absent or null.
const OrderedJson* Present(const OrderedJson& object, std::string_view key) {
  const OrderedJson* const value = object.Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

template <typename Table>
auto Lookup(const Table& table, std::string_view field, const OrderedJson& value)
    -> Result<decltype(table.begin()->value)> {
  const std::string* const name = value.if_string();
  const auto known =
      std::ranges::find_if(table, [&](const auto& entry) { return name != nullptr && entry.name == *name; });
  if (known != table.end()) return known->value;
  std::string names;
  for (const auto& entry : table) names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  return Wrong(field, value, "one of " + names);
}

Result<bool> ReadBool(const OrderedJson& object, std::string_view key, bool absent) {
  const OrderedJson* const value = Present(object, key);
  if (value == nullptr) return absent;
  if (const bool* const truth = value->if_bool()) return *truth;
  return Wrong(key, *value, "true or false");
}

Result<std::string> ReadString(const OrderedJson& object, std::string_view key) {
  const OrderedJson* const value = Present(object, key);
  if (value == nullptr) return std::string();
  if (const std::string* const text = value->if_string()) return *text;
  return Wrong(key, *value, "a string");
}

Result<OrderedJson::Array> ReadArray(const OrderedJson& object, std::string_view key) {
  const OrderedJson* const value = Present(object, key);
  if (value == nullptr) return OrderedJson::Array();
  if (const OrderedJson::Array* const items = value->if_array()) return *items;
  return Wrong(key, *value, "an array");
}

bool NamesSource(const OrderedJson& value) {
  const std::string* const text = value.if_string();
  return text != nullptr ? !text->empty() : value.if_object() != nullptr && !value.if_object()->empty();
}

// Section 8: {"image_url": url or {"url"}} or an "image" with a source, a url or data.
Result<ContentPart> ReadImage(const OrderedJson& part, std::string_view type) {
  const OrderedJson* source = nullptr;
  if (type == "image_url") {
    source = Present(part, type);
    if (source != nullptr && source->if_object() != nullptr) source = Present(*source, "url");
  } else {
    for (const char* const key : {"source", "url", "data"}) {
      if (source == nullptr) source = Present(part, key);
    }
  }
  if (source != nullptr && NamesSource(*source)) return ContentPart(ImageSource{*source});
  return Wrong(type, part, "an image with a source");
}

Result<ContentPart> ReadPart(const OrderedJson& part) {
  if (const std::string* const text = part.if_string()) return ContentPart(*text);
  if (part.if_object() == nullptr) return Wrong("content", part, "parts that are objects");
  MILLRACE_ASSIGN_OR_RETURN(const std::string type, ReadString(part, "type"));
  if (type == "image_url" || type == "image") return ReadImage(part, type);
  if (type != "text") return ContentPart(fmt::format("[Unsupported {}]", type));
  MILLRACE_ASSIGN_OR_RETURN(std::string text, ReadString(part, "text"));
  return ContentPart(std::move(text));
}

Result<MessageContent> ReadContent(const OrderedJson& message) {
  const OrderedJson* const content = Present(message, "content");
  if (content == nullptr) return MessageContent();
  if (const std::string* const text = content->if_string()) return MessageContent(*text);
  const OrderedJson::Array* const items = content->if_array();
  if (items == nullptr) return Wrong("content", *content, "a string or an array of parts");
  std::vector<ContentPart> parts;
  for (const OrderedJson& item : *items) {
    MILLRACE_ASSIGN_OR_RETURN(ContentPart part, ReadPart(item));
    parts.push_back(std::move(part));
  }
  return MessageContent(std::move(parts));
}

Result<ToolCall> ReadCall(const OrderedJson& call, ChatModel model) {
  const OrderedJson* const function = Present(call, "function");
  if (function == nullptr) return Wrong("tool_calls", call, "calls with a \"function\"");
  MILLRACE_ASSIGN_OR_RETURN(const std::string name, ReadString(*function, "name"));
  if (name.empty()) return Wrong("function", *function, "a function with a \"name\"");
  const OrderedJson* space = Present(call, "namespace");
  if (space == nullptr) space = Present(*function, "namespace");
  ToolCall read;
  MILLRACE_ASSIGN_OR_RETURN(read.id, ReadString(call, "id"));
  MILLRACE_ASSIGN_OR_RETURN(read.name, WrittenCallName(name, space, model));
  if (const OrderedJson* const arguments = Present(*function, "arguments")) {
    const std::string* const text = arguments->if_string();
    read.arguments = text != nullptr ? *text : PythonJson(*arguments);
  }
  return read;
}

Result<std::vector<ToolDeclaration>> ReadTools(const OrderedJson& object, ChatModel model) {
  MILLRACE_ASSIGN_OR_RETURN(const OrderedJson::Array items, ReadArray(object, "tools"));
  std::vector<ToolDeclaration> tools;
  for (const OrderedJson& item : items) {
    // A tool of the OpenAI form, or a function object by itself.
    const OrderedJson* const function = Present(item, "function");
    MILLRACE_ASSIGN_OR_RETURN(ToolDeclaration tool, DeclareTool(function == nullptr ? item : *function,
                                                                item.Find("namespace"), model));
    tools.push_back(std::move(tool));
  }
  return tools;
}

// {"type": "text"} asks for nothing in particular.
OrderedJson ReadResponseFormat(const OrderedJson& object) {
  const OrderedJson* const format = Present(object, "response_format");
  if (format == nullptr) return {};
  static const OrderedJson kText(OrderedJson::Object{{"type", OrderedJson("text")}});
  return *format == kText ? OrderedJson() : *format;
}

Result<std::optional<Task>> ReadTask(const OrderedJson& object) {
  const OrderedJson* const name = Present(object, "task");
  if (name == nullptr) return std::optional<Task>();
  MILLRACE_ASSIGN_OR_RETURN(const Task task, Lookup(kTasks, "task", *name));
  return std::optional(task);
}

Result<ChatMessage> ReadMessage(const OrderedJson& object, ChatModel model) {
  ChatMessage message;
  const OrderedJson* const role = object.Find("role");
  MILLRACE_ASSIGN_OR_RETURN(message.role, Lookup(kRoles, "role", role == nullptr ? OrderedJson() : *role));
  MILLRACE_ASSIGN_OR_RETURN(message.content, ReadContent(object));
  const bool alias = Present(object, "reasoning_content") == nullptr;
  MILLRACE_ASSIGN_OR_RETURN(message.reasoning, ReadString(object, alias ? "reasoning" : "reasoning_content"));
  MILLRACE_ASSIGN_OR_RETURN(const OrderedJson::Array calls, ReadArray(object, "tool_calls"));
  for (const OrderedJson& item : calls) {
    MILLRACE_ASSIGN_OR_RETURN(ToolCall call, ReadCall(item, model));
    message.tool_calls.push_back(std::move(call));
  }
  MILLRACE_ASSIGN_OR_RETURN(message.tool_call_id, ReadString(object, "tool_call_id"));
  MILLRACE_ASSIGN_OR_RETURN(message.task, ReadTask(object));
  MILLRACE_ASSIGN_OR_RETURN(message.tools, ReadTools(object, model));
  message.response_format = ReadResponseFormat(object);
  return message;
}

// V4's encoder knows efforts by name only.
Result<std::optional<int>> ReadEffort(const OrderedJson& options, ChatModel model) {
  constexpr std::string_view kKey = "reasoning_effort";
  const OrderedJson* const value = Present(options, kKey);
  if (value == nullptr) return std::optional<int>();
  const OrderedJson::Number* const number = value->if_number();
  if (number == nullptr || model == ChatModel::kV4) {
    MILLRACE_ASSIGN_OR_RETURN(const int effort, Lookup(kEfforts, kKey, *value));
    return std::optional(effort);
  }
  int effort = 0;
  const char* const end = number->text.data() + number->text.size();
  const auto parsed = std::from_chars(number->text.data(), end, effort);
  if (parsed.ec == std::errc() && parsed.ptr == end && IsReasoningEffort(effort))
    return std::optional(effort);
  return Wrong(kKey, *value, "an integer from 1 to 100");
}

Result<ChatOptions> ReadOptions(const OrderedJson& options, ChatModel model) {
  ChatOptions read;
  read.always_open_answer = false;
  MILLRACE_ASSIGN_OR_RETURN(read.thinking, ReadBool(options, "thinking", true));
  MILLRACE_ASSIGN_OR_RETURN(read.reasoning_effort, ReadEffort(options, model));
  MILLRACE_ASSIGN_OR_RETURN(read.drop_reasoning, ReadBool(options, "drop_thinking", true));
  MILLRACE_ASSIGN_OR_RETURN(read.continue_final_message, ReadBool(options, "continue_final_message", false));
  MILLRACE_ASSIGN_OR_RETURN(read.task, ReadTask(options));
  return read;
}

}  // namespace

Result<ChatModel> ParseChatModel(std::string_view name) {
  return Lookup(kModels, "model", OrderedJson(std::string(name)));
}

Result<ChatCase> ReadChatCase(const OrderedJson& value, ChatModel default_model) {
  if (value.if_object() == nullptr) return Wrong("case", value, "an object");
  ChatCase read{.model = default_model, .request = {}};
  if (const OrderedJson* const model = Present(value, "model")) {
    MILLRACE_ASSIGN_OR_RETURN(read.model, Lookup(kModels, "model", *model));
  }
  const OrderedJson* const options = Present(value, "options");
  MILLRACE_ASSIGN_OR_RETURN(read.request.options,
                            ReadOptions(options == nullptr ? OrderedJson() : *options, read.model));
  MILLRACE_ASSIGN_OR_RETURN(const OrderedJson::Array messages, ReadArray(value, "messages"));
  for (size_t i = 0; i < messages.size(); ++i) {
    Result<ChatMessage> message = ReadMessage(messages[i], read.model);
    if (!message.ok()) return message.error().In(fmt::format("messages[{}]", i));
    read.request.messages.push_back(*std::move(message));
  }
  if (!messages.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const bool prefix, ReadBool(messages.back(), "prefix", false));
    read.request.options.continue_final_message |= prefix;
  }
  MILLRACE_ASSIGN_OR_RETURN(read.request.tools, ReadTools(value, read.model));
  read.request.response_format = ReadResponseFormat(value);
  return read;
}

}  // namespace millrace::text
