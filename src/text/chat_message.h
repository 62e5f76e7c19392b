#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::text {

// Who speaks, in the encoder's terms (chat encoding, section 2). An endpoint maps its dialect's roles to
// these.
enum class Role : uint8_t { kSystem, kUser, kAssistant, kLatestReminder };

// One message of a conversation, free of any dialect. Texts are the caller's: never scanned for control
// tokens.
struct ChatMessage {
  Role role = Role::kUser;
  std::string content;
  std::string reasoning;  // of an assistant message; empty if it had none or the client did not send it back
};

inline constexpr int kLowEffort = 50;
inline constexpr int kHighEffort = 75;  // also when nothing is given
inline constexpr int kMaxEffort = 100;

struct ChatOptions {
  // Thinking mode: the completion begins inside the reasoning. Otherwise chat mode: it is the answer.
  bool thinking = true;
  int reasoning_effort = kHighEffort;  // 1 to 100; without effect in chat mode
  // Older assistant messages lose their reasoning (section 5).
  bool drop_reasoning = true;
  // Ends the prompt with an assistant header in the cases where the format itself would not have one, so that
  // the model speaks: after a final assistant message, a lone system message, a reminder after no user turn.
  bool always_open_answer = true;
};

struct ChatRequest {
  std::vector<ChatMessage> messages;
  ChatOptions options;
};

}  // namespace millrace::text
