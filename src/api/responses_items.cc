#include "api/responses_items.h"

#include "api/json_object_text.h"
#include "api/logprobs_json.h"

namespace millrace::api {

std::string LogprobsJson(std::span<const ScoredToken> tokens) {
  std::string list;
  AppendScoredTokens(tokens, list);
  return list;
}

std::string ReasoningPartJson(std::string_view text) {
  return JsonObjectText().Text("type", "reasoning_text").Text("text", text).Object();
}

std::string TextPartJson(std::string_view text, std::string_view logprobs) {
  return JsonObjectText()
      .Text("type", "output_text")
      .Text("text", text)
      .Json("annotations", "[]")
      .Json("logprobs", logprobs)
      .Object();
}

std::string ReasoningItemJson(std::string_view id, std::string_view content_json, std::string_view sealed,
                              std::string_view status) {
  JsonObjectText item;
  item.Text("id", id).Text("type", "reasoning").Json("summary", "[]").Json("content", content_json);
  if (sealed.empty()) {
    item.Null("encrypted_content");
  } else {
    item.Text("encrypted_content", sealed);
  }
  return item.Text("status", status).Object();
}

std::string MessageItemJson(std::string_view id, std::string_view content_json, std::string_view status) {
  return JsonObjectText()
      .Text("id", id)
      .Text("type", "message")
      .Text("role", "assistant")
      .Json("content", content_json)
      .Text("status", status)
      .Object();
}

std::string CallItemJson(const CallItem& call, std::string_view text, std::string_view status) {
  JsonObjectText item;
  item.Text("id", call.id).Text("type", call.custom ? "custom_tool_call" : "function_call");
  item.Text("call_id", call.call_id).Text("name", call.tool.name);
  if (!call.tool.name_space.empty()) item.Text("namespace", call.tool.name_space);
  item.Text(call.custom ? "input" : "arguments", text);
  return item.Text("status", status).Object();
}

}  // namespace millrace::api
