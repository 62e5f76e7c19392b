#include "loadgen/chat_answer.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <utility>

namespace millrace::loadgen {

namespace json = boost::json;

namespace {

constexpr size_t kMaxShownBytes = 160;
constexpr uint64_t kMaxToolCalls = 1024;

const json::value* Member(const json::value& value, std::string_view key) {
  const json::object* const object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(key);
}

std::string_view Text(const json::value& value, std::string_view key) {
  const json::value* const member = Member(value, key);
  if (member == nullptr || !member->is_string()) return {};
  return {member->get_string().data(), member->get_string().size()};
}

std::optional<int64_t> Count(const json::value& value, std::string_view key) {
  const json::value* const member = Member(value, key);
  if (member == nullptr || !member->is_number()) return std::nullopt;
  boost::system::error_code failure;
  const auto count = member->to_number<int64_t>(failure);
  if (failure || count < 0) return std::nullopt;
  return count;
}

std::optional<Usage> ReadUsage(const json::value& chunk) {
  const json::value* const object = Member(chunk, "usage");
  if (object == nullptr || !object->is_object()) return std::nullopt;
  const std::optional<int64_t> prompt = Count(*object, "prompt_tokens");
  if (!prompt) return std::nullopt;
  Usage usage{.prompt_tokens = *prompt,
              .completion_tokens = Count(*object, "completion_tokens").value_or(0),
              .cached_tokens = {}};
  if (const json::value* const details = Member(*object, "prompt_tokens_details"))
    usage.cached_tokens = Count(*details, "cached_tokens");
  // DeepSeek's own name.
  if (!usage.cached_tokens) usage.cached_tokens = Count(*object, "prompt_cache_hit_tokens");
  return usage;
}

// Appends the parts of calls in `delta`; whether there were any.
bool AppendToolCalls(const json::value& delta, std::vector<ToolCall>& calls) {
  const json::value* const list = Member(delta, "tool_calls");
  if (list == nullptr || !list->is_array()) return false;
  for (const json::value& part : list->get_array()) {
    const auto index = static_cast<uint64_t>(Count(part, "index").value_or(0));
    if (index >= kMaxToolCalls) continue;
    if (calls.size() <= index) calls.resize(index + 1);
    ToolCall& call = calls[index];
    if (call.id.empty()) call.id = Text(part, "id");
    if (const json::value* const function = Member(part, "function")) {
      call.name += Text(*function, "name");
      call.arguments += Text(*function, "arguments");
    }
  }
  return !list->get_array().empty();
}

}  // namespace

std::string ChatAnswer::Transcript() const {
  std::string text = fmt::format("{}\x1f{}\x1f{}", reasoning, content, finish_reason);
  for (const ToolCall& call : tool_calls) text += fmt::format("\x1f{}({})", call.name, call.arguments);
  return text;
}

int ChatAnswerReader::Feed(std::string_view bytes) {
  if (failure_ || done_) return 0;
  const Result<std::vector<StreamEvent>> events = events_.Feed(bytes);
  if (!events.ok()) {
    failure_ = Failure{.kind = FailureKind::kMalformedEvent, .detail = events.error().message()};
    return 0;
  }
  int n_with_text = 0;
  for (const StreamEvent& event : *events) {
    if (failure_ || done_) break;
    if (TakeEvent(event)) ++n_with_text;
  }
  return n_with_text;
}

bool ChatAnswerReader::TakeEvent(const StreamEvent& event) {
  if (event.data == "[DONE]") {
    done_ = true;
    return false;
  }
  boost::system::error_code failure;
  const json::value chunk = json::parse(event.data, failure);
  if (failure || !chunk.is_object()) {
    failure_ =
        Failure{.kind = FailureKind::kMalformedEvent,
                .detail = fmt::format("an event's data is not a JSON object: {}", Printable(event.data))};
    return false;
  }
  if (const json::value* const error = Member(chunk, "error"); error != nullptr && !error->is_null()) {
    failure_ = Failure{.kind = FailureKind::kErrorEvent, .detail = ErrorText(event.data)};
    return false;
  }
  if (const std::optional<Usage> usage = ReadUsage(chunk)) usage_ = usage;
  const json::value* const choices = Member(chunk, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return false;
  const json::value& choice = choices->get_array().front();
  if (const std::string_view reason = Text(choice, "finish_reason"); !reason.empty())
    answer_.finish_reason = reason;
  const json::value* const delta = Member(choice, "delta");
  if (delta == nullptr) return false;
  const std::string_view content = Text(*delta, "content");
  std::string_view reasoning = Text(*delta, "reasoning_content");
  if (reasoning.empty()) reasoning = Text(*delta, "reasoning");
  answer_.content += content;
  answer_.reasoning += reasoning;
  const bool has_call = AppendToolCalls(*delta, answer_.tool_calls);
  return has_call || !content.empty() || !reasoning.empty();
}

void ChatAnswerReader::End() {
  if (failure_ || done_ || !answer_.finish_reason.empty()) return;
  failure_ = Failure{.kind = FailureKind::kClosedEarly,
                     .detail = "the answer ended without a finish reason and without [DONE]"};
}

std::string Printable(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, kMaxShownBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  return text.size() > kMaxShownBytes ? shown + "..." : shown;
}

std::string ErrorText(std::string_view body) {
  boost::system::error_code failure;
  const json::value value = json::parse(body, failure);
  if (!failure) {
    const json::value* const error = Member(value, "error");
    std::string_view message = error == nullptr ? "" : Text(*error, "message");
    if (message.empty()) message = Text(value, "error");
    if (message.empty()) message = Text(value, "message");
    if (!message.empty()) return Printable(message);
  }
  return Printable(body);
}

}  // namespace millrace::loadgen
