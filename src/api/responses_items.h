#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/generation.h"
#include "text/tool_schema.h"

namespace millrace::api {

// The JSON of a response's output items and of their parts, as POST /v1/responses gives them. `status` is
// "in_progress", "completed" or "incomplete".

// Parts of an item's content.
std::string ReasoningPartJson(std::string_view text);
// `logprobs`: an array.
std::string TextPartJson(std::string_view text, std::string_view logprobs);
// The entries of "logprobs", with commas between.
std::string LogprobsJson(std::span<const ScoredToken> tokens);

// `content_json`: the array of parts. `sealed`: the "encrypted_content"; empty: none.
std::string ReasoningItemJson(std::string_view id, std::string_view content_json, std::string_view sealed,
                              std::string_view status);
std::string MessageItemJson(std::string_view id, std::string_view content_json, std::string_view status);

// A call of a function, whose arguments are JSON text, or of a custom tool, whose input is free text.
struct CallItem {
  std::string id;       // of the item
  std::string call_id;  // of the call
  text::ToolName tool;  // as the client declared it
  bool custom = false;
};
std::string CallItemJson(const CallItem& call, std::string_view text, std::string_view status);

}  // namespace millrace::api
