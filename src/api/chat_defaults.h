#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"

namespace millrace::api {

// What a chat request that leaves it open gets; nullopt: the format's own default (thinking, effort high).
struct ChatDefaults {
  std::optional<bool> thinking = {};
  std::optional<int> reasoning_effort = {};  // 1 to 100
};

// Of vLLM's --default-chat-template-kwargs: a JSON object with thinking (or enable_thinking) and
// reasoning_effort, as requests name them; "none" switches thinking off. kInvalidArgument naming anything
// else.
Result<ChatDefaults> ParseChatDefaults(std::string_view json);

}  // namespace millrace::api
