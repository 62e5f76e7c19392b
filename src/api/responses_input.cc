#include "api/responses_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "api/custom_tool_input.h"
#include "api/message_fields.h"
#include "api/reasoning_seal.h"

namespace millrace::api {
namespace {

// What OpenAI's own tools leave in a conversation. Their results are part of the answers that followed.
constexpr std::array<std::string_view, 8> kHostedItems = {
    "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
    "mcp_call",        "mcp_list_tools",   "mcp_approval_request",  "mcp_approval_response"};

constexpr std::string_view kItemTypes =
    "message, reasoning, function_call, function_call_output, custom_tool_call or custom_tool_call_output";

constexpr std::string_view kRoles = "system, developer, user or assistant";

// The texts of a list of {"text"}. Of what other servers wrote there nothing is refused.
std::string JoinTexts(const text::OrderedJson* list, std::string_view between) {
  std::string joined;
  if (list == nullptr || list->if_array() == nullptr) return joined;
  for (const text::OrderedJson& part : *list->if_array()) {
    const text::OrderedJson* const text = part.Find("text");
    if (text == nullptr || text->if_string() == nullptr) continue;
    if (!joined.empty()) joined += between;
    joined += *text->if_string();
  }
  return joined;
}

std::string ReasoningText(const text::OrderedJson& item) {
  if (std::string text = JoinTexts(item.Find("content"), ""); !text.empty()) return text;
  if (std::string text = JoinTexts(item.Find("summary"), "\n\n"); !text.empty()) return text;
  const text::OrderedJson* const sealed = item.Find("encrypted_content");
  if (sealed == nullptr || sealed->if_string() == nullptr) return "";
  return UnsealReasoning(*sealed->if_string()).value_or("");
}

// Puts the items of one conversation together.
class InputReader {
 public:
  InputReader(text::ChatModel model, FirstError& error) : model_(model), error_(error) {}

  void AddText(text::Role role, std::string text) { Add({.role = role, .content = std::move(text)}); }
  void AddItem(const text::OrderedJson& item, const std::string& path);
  std::vector<text::ChatMessage> Take() {
    CloseAssistant();
    return std::move(messages_);
  }

 private:
  void Add(text::ChatMessage message) {
    CloseAssistant();
    messages_.push_back(std::move(message));
  }
  // The message that the assistant's items around here make.
  text::ChatMessage& Assistant() {
    if (!assistant_) assistant_.emplace(text::ChatMessage{.role = text::Role::kAssistant});
    return *assistant_;
  }
  void CloseAssistant() {
    if (!assistant_) return;
    if (!assistant_parts_.empty()) assistant_->content = std::exchange(assistant_parts_, {});
    messages_.push_back(*std::exchange(assistant_, std::nullopt));
  }

  void AddMessage(FieldReader& item);
  void AddCall(FieldReader& item, bool custom);
  void AddOutput(FieldReader& item);

  const text::ChatModel model_;
  FirstError& error_;
  std::vector<text::ChatMessage> messages_;
  std::optional<text::ChatMessage> assistant_;  // not yet among them
  std::vector<text::ContentPart> assistant_parts_;
};

void InputReader::AddItem(const text::OrderedJson& item, const std::string& path) {
  if (item.if_object() == nullptr) return FailType(error_, path, item, "an item, an object with a type");
  FieldReader reader(item, path, error_);
  const std::optional<std::string> type = reader.String("type");
  if (error_.set()) return;
  if (type ? *type == "message" : reader.Find("role") != nullptr) return AddMessage(reader);
  if (!type) return FailMissing(reader, "type", kItemTypes);
  if (*type == "reasoning") {
    Assistant().reasoning += ReasoningText(item);
  } else if (*type == "function_call" || *type == "custom_tool_call") {
    AddCall(reader, *type == "custom_tool_call");
  } else if (*type == "function_call_output" || *type == "custom_tool_call_output") {
    AddOutput(reader);
  } else if (*type == "item_reference") {
    error_.Set(
        ApiErrorKind::kUnsupportedField,
        fmt::format("'{}' is \"item_reference\", but this server stores no items. Send the item itself.",
                    reader.PathOf("type")),
        reader.PathOf("type"));
  } else if (std::ranges::find(kHostedItems, *type) == kHostedItems.end()) {
    FailValue(error_, reader.PathOf("type"), *item.Find("type"), kItemTypes);
  }
}

void InputReader::AddMessage(FieldReader& item) {
  const std::optional<std::string> role = item.String("role");
  if (error_.set()) return;
  if (!role) return FailMissing(item, "role", kRoles);
  text::MessageContent content = ReadContent(item, "content");
  if (*role == "assistant") {
    Assistant();
    assistant_parts_.insert(assistant_parts_.end(), content.parts().begin(), content.parts().end());
  } else if (*role == "user") {
    Add({.role = text::Role::kUser, .content = std::move(content)});
  } else if (*role == "system") {
    Add({.role = text::Role::kSystem, .content = std::move(content)});
  } else if (*role == "developer") {
    Add({.role = text::Role::kDeveloper, .content = std::move(content)});
  } else {
    FailValue(error_, item.PathOf("role"), *item.Find("role"), kRoles);
  }
}

void InputReader::AddCall(FieldReader& item, bool custom) {
  text::ToolCall call;
  const std::optional<std::string> call_id = item.String("call_id");
  call.id = call_id ? *call_id : item.String("id").value_or("");
  call.arguments = custom ? CustomToolArguments(item.String("input").value_or("")) : ReadCallArguments(item);
  call.name = ReadCallName(item, item.Find("namespace"), model_);
  if (!error_.set()) Assistant().tool_calls.push_back(std::move(call));
}

void InputReader::AddOutput(FieldReader& item) {
  text::ChatMessage result{.role = text::Role::kTool};
  result.tool_call_id = item.String("call_id").value_or("");
  result.content = ReadContent(item, "output");
  Add(std::move(result));
}

}  // namespace

std::vector<text::ChatMessage> ReadResponsesInput(FieldReader& body, text::ChatModel model) {
  constexpr std::string_view kExpected = "a string, or an array of at least one item";
  InputReader reader(model, body.error());
  if (std::string system = body.String("instructions").value_or(""); !system.empty())
    reader.AddText(text::Role::kSystem, std::move(system));
  const text::OrderedJson* const input = body.Find("input");
  if (input == nullptr) {
    FailMissing(body, "input", kExpected);
  } else if (input->if_string() != nullptr) {
    reader.AddText(text::Role::kUser, *input->if_string());
  } else if (input->if_array() == nullptr) {
    FailType(body.error(), "input", *input, kExpected);
  } else {
    const text::OrderedJson::Array& items = *input->if_array();
    for (size_t i = 0; i < items.size() && !body.error().set(); ++i)
      reader.AddItem(items[i], fmt::format("input[{}]", i));
    std::vector<text::ChatMessage> messages = reader.Take();
    if (messages.empty()) FailValue(body.error(), "input", *input, kExpected);
    return messages;
  }
  return reader.Take();
}

}  // namespace millrace::api
