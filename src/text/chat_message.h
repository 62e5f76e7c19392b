#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "text/ordered_json.h"

namespace millrace::text {

// Who speaks (chat encoding, section 2). kTool is the result of a call. kDeveloper is a system message for
// V4.1; V4 has it as a role of its own except at the start.
enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool, kLatestReminder, kDeveloper };

// The vendor's classification prompts (section 9), in the order of their token ids.
enum class Task : uint8_t { kAction, kQuery, kAuthority, kDomain, kTitle, kReadUrl };
inline constexpr size_t kTaskCount = 6;

// Where an image comes from: the url string or the source object, as the client gave it.
struct ImageSource {
  OrderedJson source;
};

// One part of a message's content. Texts are the caller's: never scanned for control tokens.
using ContentPart = std::variant<std::string, ImageSource>;

// What a message says: parts that the prompt joins with a blank line. A plain string is one part, a list of
// no parts is none. Converts from text, because most messages are nothing else.
class MessageContent {
 public:
  MessageContent() : MessageContent(std::string()) {}
  MessageContent(std::string text) { parts_.emplace_back(std::move(text)); }    // NOLINT: on purpose
  MessageContent(const char* text) : MessageContent(std::string(text)) {}       // NOLINT: on purpose
  MessageContent(std::vector<ContentPart> parts) : parts_(std::move(parts)) {}  // NOLINT: on purpose

  const std::vector<ContentPart>& parts() const { return parts_; }
  // No image, and no text of any length.
  bool empty() const;
  bool HasImage() const;
  // The texts joined with a blank line, images left out.
  std::string Text() const;

 private:
  std::vector<ContentPart> parts_;
};

// A call in the history. `name` is the one that the prompt shows ("ns::name", see tool_declaration.h).
// `arguments` is JSON text as the client sent it; blank counts as {}.
struct ToolCall {
  std::string id = {};
  std::string name = {};
  std::string arguments = {};
};

// A tool as the prompt declares it; made by DeclareTool.
struct ToolDeclaration {
  std::string name = {};        // as written in the prompt
  std::string json_line = {};   // the function object in the canonical JSON style
  OrderedJson parameters = {};  // its schema; null if it has none
};

// One message of a conversation, free of any dialect.
struct ChatMessage {
  Role role = Role::kUser;
  MessageContent content = {};
  // Of an assistant message; empty if it had none or the client did not send it back.
  std::string reasoning = {};
  std::vector<ToolCall> tool_calls = {};  // of an assistant message
  std::string tool_call_id = {};          // of a tool message
  std::optional<Task> task = {};          // of the message that asks for it
  // Shown with a system message, in V4 also with a developer message.
  std::vector<ToolDeclaration> tools = {};
  OrderedJson response_format = {};  // null or an empty object: none

  // The very tokens that this server generated for an assistant message, from behind the header's think token
  // to in front of the end token. The prompt repeats them instead of spelling the message again, because
  // another spelling would be another prefix. The fields above still describe the message: they are used
  // where the reasoning must go and the tokens do not part cleanly.
  std::vector<TokenId> generated_ids = {};
  bool generated_in_reasoning = true;  // those tokens began inside the reasoning (the header opened it)
};

struct ChatOptions {
  // Thinking mode: the completion begins inside the reasoning. Otherwise chat mode: it is the answer.
  bool thinking = true;
  // 1 to 100; nullopt: not given. Without effect in chat mode.
  std::optional<int> reasoning_effort = {};
  // Older assistant messages lose their reasoning (section 5), unless a tool is declared.
  bool drop_reasoning = true;
  // Ends the prompt with an assistant header in the cases where the format itself would not have one, so that
  // the model speaks: after a final assistant message that is not continued, a lone system message, a
  // reminder after no user turn. A continued or generated message that no header precedes gets one.
  bool always_open_answer = true;
  // The last message, which must be the assistant's, is left open and the completion goes on with it
  // (section 10).
  bool continue_final_message = false;
  // Of the last user message, over its own.
  std::optional<Task> task = {};
};

struct ChatRequest {
  std::vector<ChatMessage> messages = {};
  // Shown with the first message if that is a system message, else with an empty one put in front.
  std::vector<ToolDeclaration> tools = {};
  OrderedJson response_format = {};  // the object to be written; null or an empty object: none
  ChatOptions options = {};
};

}  // namespace millrace::text
