#include "api/responses_items.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "api/json_object_text.h"
#include "text/utf8.h"

namespace millrace::api {
namespace {

// As few digits as tell the float. JSON has no infinity: the floor is that of the other endpoints.
std::string LogprobText(float logprob) {
  constexpr float kFloor = -9999.0f;
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), std::max(logprob, kFloor)).ptr;
  return {std::begin(digits), end};
}

std::string Join(std::string_view list, std::string_view next) {
  std::string joined(list);
  if (!joined.empty()) joined += ',';
  joined += next;
  return joined;
}

JsonObjectText TokenMembers(const TokenText& token) {
  std::string bytes;
  for (const char byte : token.bytes) bytes = Join(bytes, std::to_string(static_cast<uint8_t>(byte)));
  JsonObjectText out;
  out.Text("token", text::RepairUtf8(token.bytes));
  out.Json("bytes", "[" + bytes + "]");
  out.Json("logprob", LogprobText(token.logprob));
  return out;
}

}  // namespace

std::string LogprobsJson(std::span<const ScoredToken> tokens) {
  std::string list;
  for (const ScoredToken& token : tokens) {
    std::string top;
    for (const TokenText& other : token.top) {
      if (!top.empty()) top += ',';
      top += TokenMembers(other).Object();
    }
    if (!list.empty()) list += ',';
    list += TokenMembers(token.chosen).Json("top_logprobs", "[" + top + "]").Object();
  }
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
