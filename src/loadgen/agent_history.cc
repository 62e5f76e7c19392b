#include "loadgen/agent_history.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <utility>

#include "base/check.h"
#include "loadgen/chat_client.h"

namespace millrace::loadgen {

namespace json = boost::json;

AgentHistory::AgentHistory(std::string_view system) {
  entries_.push_back({.message = Message("system", system), .reminder = {}});
}

void AgentHistory::AddUser(std::string_view text) {
  entries_.push_back({.message = Message("user", text), .reminder = {}});
}

void AgentHistory::AddAnswer(const ChatAnswer& answer) {
  entries_.push_back({.message = AssistantMessage(answer), .reminder = {}});
}

void AgentHistory::AddToolOutputs(const std::function<std::string()>& output) {
  const json::object last = entries_.back().message;
  const json::value* const calls = last.if_contains("tool_calls");
  if (calls == nullptr) return AddUser(fmt::format("Output of the tool: {}", output()));
  for (const json::value& call : calls->as_array()) {
    json::object message = Message("tool", output());
    message["tool_call_id"] = call.at("id");
    entries_.push_back({.message = std::move(message), .reminder = {}});
  }
}

void AgentHistory::Remind(std::string_view text) {
  for (Entry& entry : entries_) entry.reminder.clear();
  entries_.back().reminder = fmt::format("\n<system-reminder>{}</system-reminder>", text);
}

void AgentHistory::ShortenLast(size_t n_bytes) {
  json::string& content = entries_.back().message.at("content").as_string();
  if (content.size() <= n_bytes) return;
  const size_t space = std::string_view(content.data(), content.size()).rfind(' ', n_bytes);
  content.resize(space == std::string_view::npos ? n_bytes : space);
}

void AgentHistory::Compact(std::string_view summary) {
  entries_.resize(1, Entry{});
  AddUser(fmt::format("Summary of the conversation so far: {}", summary));
}

json::array AgentHistory::Messages() const {
  json::array messages;
  for (const Entry& entry : entries_) {
    json::object message = entry.message;
    if (!entry.reminder.empty()) {
      json::string& content = message.at("content").as_string();
      content.append(entry.reminder);
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

json::array AgentTools() {
  return {{{"type", "function"},
           {"function",
            {{"name", "get_weather"},
             {"description", "Get the weather of a city."},
             {"parameters",
              {{"type", "object"},
               {"properties", {{"city", {{"type", "string"}}}}},
               {"required", json::array{"city"}}}}}}}};
}

}  // namespace millrace::loadgen
