#include "api/anthropic_decode_messages.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "text/ordered_json.h"

namespace millrace::api {
namespace {

// Stands at the start of Claude Code's system blocks and changes with every request: in the prompt it would
// cost the whole cached prefix.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

// Takes a block of the given type, whose fields `block` reads.
using BlockReader = std::function<void(FieldReader& block, const std::string& type)>;

void ReadBlocks(const text::OrderedJson::Array& blocks, const std::string& path, FirstError& error,
                const BlockReader& read) {
  for (size_t i = 0; i < blocks.size() && !error.set(); ++i) {
    const std::string block_path = fmt::format("{}[{}]", path, i);
    if (blocks[i].if_object() == nullptr)
      return FailType(error, block_path, blocks[i], "an object with the type of a content block");
    FieldReader block(blocks[i], block_path, error);
    const std::optional<std::string> type = block.String("type");
    if (!type && !error.set()) FailMissing(block, "type", "the kind of the content block");
    if (type) read(block, *type);
  }
}

// The content of a message, a result or a document: a string, which counts as one block of text, or blocks.
void ReadContent(FieldReader& owner, std::string_view key, const std::function<void(std::string)>& add_text,
                 const BlockReader& read) {
  const text::OrderedJson* const content = owner.Find(key);
  if (content == nullptr) return;
  if (content->if_string() != nullptr) return add_text(*content->if_string());
  if (content->if_array() == nullptr)
    return FailType(owner.error(), owner.PathOf(key), *content, "a string or an array of content blocks");
  ReadBlocks(*content->if_array(), owner.PathOf(key), owner.error(), read);
}

std::string RequiredString(FieldReader& block, std::string_view key, std::string_view what) {
  std::optional<std::string> value = block.String(key);
  if (!value && !block.error().set()) FailMissing(block, key, what);
  return value.value_or("");
}

std::string ReadText(FieldReader& block) {
  return RequiredString(block, "text", "the block's text");
}

void FailUnsupported(FieldReader& block, std::string_view what) {
  // The block itself is to blame.
  std::string path = block.PathOf("type");
  path.resize(path.size() - std::string_view(".type").size());
  block.error().Set(ApiErrorKind::kUnsupportedField, fmt::format("'{}' is {}", path, what), path);
}

void FailBlockType(FieldReader& block, std::string_view accepted) {
  FailValue(block.error(), block.PathOf("type"), *block.Find("type"), accepted);
}

void FailImage(FieldReader& block) {
  FailUnsupported(block, "an image; this server does not read images. Leave it out or describe it in words.");
}

// A document's text as parts; anything else is refused rather than left out.
void ReadDocument(FieldReader& document, std::vector<text::ContentPart>& parts) {
  const text::OrderedJson* const object = document.Object("source");
  if (object == nullptr) {
    if (!document.error().set()) FailMissing(document, "source", "where the document's text is");
    return;
  }
  FieldReader source(*object, document.PathOf("source"), document.error());
  const std::string type = RequiredString(source, "type", "text or content");
  if (source.error().set()) return;
  const auto add = [&](std::string text) { parts.emplace_back(std::move(text)); };
  if (type == "text") return add(RequiredString(source, "data", "the document's text"));
  if (type == "content") {
    return ReadContent(source, "content", add, [&](FieldReader& block, const std::string& block_type) {
      if (block_type == "text") return add(ReadText(block));
      if (block_type == "image") return FailImage(block);
      FailBlockType(block, "text");
    });
  }
  FailUnsupported(document, fmt::format("a document with a source of type \"{}\"; this server reads no PDF, "
                                        "only documents whose source has the type text or content. Send its "
                                        "text.",
                                        type.substr(0, 40)));
}

// A block that both users and results of tools may hold; false: it is none of them.
bool ReadShownBlock(FieldReader& block, const std::string& type, std::vector<text::ContentPart>& parts) {
  if (type == "text") {
    parts.emplace_back(ReadText(block));
  } else if (type == "document") {
    ReadDocument(block, parts);
  } else if (type == "image") {
    FailImage(block);
  } else {
    return false;
  }
  return true;
}

// Without empty texts: each would add a blank line.
text::MessageContent ContentOf(std::vector<text::ContentPart> parts) {
  std::erase_if(parts, [](const text::ContentPart& part) {
    const std::string* const text = std::get_if<std::string>(&part);
    return text != nullptr && text->empty();
  });
  return parts.empty() ? text::MessageContent() : text::MessageContent(std::move(parts));
}

text::ChatMessage ReadToolResult(FieldReader& block) {
  text::ChatMessage result;
  result.role = text::Role::kTool;
  result.tool_call_id = RequiredString(block, "tool_use_id", "the id of the call that this answers");
  std::vector<text::ContentPart> parts;
  ReadContent(
      block, "content", [&](std::string text) { parts.emplace_back(std::move(text)); },
      [&](FieldReader& inner, const std::string& type) {
        if (!ReadShownBlock(inner, type, parts)) FailBlockType(inner, "text or document");
      });
  result.content = ContentOf(std::move(parts));
  return result;
}

// What the user says between results is a message; a message of results only has none.
void ReadUser(FieldReader& message, std::vector<text::ChatMessage>& list) {
  std::vector<text::ContentPart> said;
  const size_t before = list.size();
  const auto end_said = [&] {
    list.push_back({.role = text::Role::kUser, .content = ContentOf(std::exchange(said, {}))});
  };
  ReadContent(
      message, "content", [&](std::string text) { said.emplace_back(std::move(text)); },
      [&](FieldReader& block, const std::string& type) {
        if (ReadShownBlock(block, type, said)) return;
        if (type != "tool_result") return FailBlockType(block, "text, tool_result or document");
        if (!said.empty()) end_said();
        list.push_back(ReadToolResult(block));
      });
  if (!said.empty() || list.size() == before) end_said();
}

text::ToolCall ReadToolUse(FieldReader& block) {
  text::ToolCall call;
  call.id = RequiredString(block, "id", "the id of the call");
  call.name = RequiredString(block, "name", "the name of the tool");
  if (const text::OrderedJson* const input = block.Find("input")) call.arguments = text::PythonJson(*input);
  return call;
}

text::ChatMessage ReadAssistant(FieldReader& message) {
  text::ChatMessage read;
  read.role = text::Role::kAssistant;
  std::string content;
  const auto add = [&](const std::string& text) { content += text; };
  ReadContent(message, "content", add, [&](FieldReader& block, const std::string& type) {
    if (type == "text") {
      add(ReadText(block));
    } else if (type == "thinking") {
      read.reasoning += RequiredString(block, "thinking", "the text of the thinking");
    } else if (type == "tool_use") {
      read.tool_calls.push_back(ReadToolUse(block));
    } else if (type != "redacted_thinking") {
      FailBlockType(block, "text, thinking, redacted_thinking or tool_use");
    }
  });
  read.content = std::move(content);
  return read;
}

text::ChatMessage ReadSystem(FieldReader& owner, std::string_view key) {
  text::ChatMessage system;
  system.role = text::Role::kSystem;
  std::vector<text::ContentPart> parts;
  const auto add = [&](std::string text) {
    if (!text.starts_with(kBillingHeader)) parts.emplace_back(std::move(text));
  };
  ReadContent(owner, key, add, [&](FieldReader& block, const std::string& type) {
    type == "text" ? add(ReadText(block)) : FailBlockType(block, "text");
  });
  system.content = ContentOf(std::move(parts));
  return system;
}

void ReadMessage(FieldReader& message, std::vector<text::ChatMessage>& list) {
  constexpr std::string_view kAccepted = "user, assistant or system";
  const std::string role = RequiredString(message, "role", kAccepted);
  if (message.error().set()) return;
  if (message.Find("content") == nullptr)
    return FailMissing(message, "content", "a string or an array of content blocks");
  if (role == "user") return ReadUser(message, list);
  if (role == "assistant") return list.push_back(ReadAssistant(message));
  if (role == "system") return list.push_back(ReadSystem(message, "content"));
  FailValue(message.error(), message.PathOf("role"), *message.Find("role"), kAccepted);
}

}  // namespace

std::optional<text::ChatMessage> ReadAnthropicSystem(FieldReader& body) {
  if (body.Find("system") == nullptr) return std::nullopt;
  text::ChatMessage system = ReadSystem(body, "system");
  if (system.content.empty()) return std::nullopt;
  return system;
}

std::vector<text::ChatMessage> ReadAnthropicMessages(FieldReader& body) {
  constexpr std::string_view kExpected = "an array of at least one message";
  std::vector<text::ChatMessage> list;
  const text::OrderedJson::Array* const messages = body.Array("messages");
  if (messages == nullptr) {
    if (!body.error().set()) FailMissing(body, "messages", kExpected);
    return list;
  }
  if (messages->empty()) FailValue(body.error(), "messages", *body.Find("messages"), kExpected);
  for (size_t i = 0; i < messages->size() && !body.error().set(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    if ((*messages)[i].if_object() == nullptr) {
      FailType(body.error(), path, (*messages)[i], "an object with role and content");
      break;
    }
    FieldReader message((*messages)[i], path, body.error());
    ReadMessage(message, list);
  }
  return list;
}

}  // namespace millrace::api
