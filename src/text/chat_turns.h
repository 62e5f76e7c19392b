#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "text/chat_message.h"
#include "text/chat_model.h"

namespace millrace::text {

// One message of a prompt. There is no tool role in it: what users say and what calls return stands together
// in user turns (chat encoding, section 6). Points into the request.
struct Turn {
  Role role = Role::kUser;  // never kTool; kDeveloper only for V4
  // The one message, or of a user turn all its user and tool messages in the order of the prompt. None: the
  // empty system message that carries the tools of a request that has no system message.
  std::vector<const ChatMessage*> messages = {};
  std::optional<Task> task = {};
  std::vector<const ToolDeclaration*> tools = {};
  const OrderedJson* response_format = nullptr;

  // A user turn of results alone continues the turn before it, as the correction of October 2026 has it
  // (section 5).
  bool IsResultsOnly() const;
};

struct Conversation {
  std::vector<Turn> turns;
  bool drop_reasoning = false;
  // The last turn that the assistant answers; reasoning in front of it is old. nullopt: none.
  std::optional<size_t> last_user;
  // Some message gives one call id twice; results go by the last.
  bool repeated_call_ids = false;
};

// Steps of section 2 in front of rendering: roles, tools of the request, merging, order of results, dropping.
// The request, which has at least one message, outlives the result. n log n.
Conversation BuildConversation(const ChatRequest& request, ChatModel model);

}  // namespace millrace::text
