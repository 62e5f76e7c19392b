#include "text/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string>

namespace millrace::text {
namespace {

constexpr std::string_view kBlockSeparator = "\n\n";

// A user turn is all user messages in a row, its texts joined as blocks (section 6); every other message is a
// turn by itself.
std::vector<ChatMessage> Turns(const std::vector<ChatMessage>& messages) {
  std::vector<ChatMessage> turns;
  for (const ChatMessage& message : messages) {
    if (message.role == Role::kUser && !turns.empty() && turns.back().role == Role::kUser) {
      turns.back().content.append(kBlockSeparator).append(message.content);
    } else {
      turns.push_back(message);
    }
  }
  return turns;
}

// Writes one conversation. Indices are those of turns; rules by section of the chat encoding.
class Renderer {
 public:
  Renderer(const ControlIds& ids, const ChatOptions& options, std::vector<ChatMessage> turns)
      : ids_(ids), options_(options), turns_(std::move(turns)), last_user_(LastUser()) {}

  ChatPrompt Render() && {
    Control(ids_.bos);
    if (turns_[0].role == Role::kSystem || options_.thinking) Control(ids_.system);
    if (options_.thinking) Text(EffortLine());
    for (size_t i = 0; i < turns_.size(); ++i) WriteTurn(i);
    if (options_.always_open_answer && !ends_with_header_) WriteHeader(turns_.size());
    return std::move(prompt_);
  }

 private:
  // Section 5. A later system message counts, because it makes the model answer; nullopt: none.
  std::optional<size_t> LastUser() const {
    for (size_t i = turns_.size(); i-- > 0;) {
      if (turns_[i].role == Role::kUser || IsLaterSystem(i)) return i;
    }
    return std::nullopt;
  }

  bool IsLaterSystem(size_t i) const { return i > 0 && turns_[i].role == Role::kSystem; }

  // Whether what the assistant thinks at turn `i` is part of the prompt.
  bool KeepsReasoning(size_t i) const {
    if (!options_.thinking) return false;
    return !options_.drop_reasoning || !last_user_ || i >= *last_user_;
  }

  std::string EffortLine() const {
    return fmt::format(
        "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
        options_.reasoning_effort);
  }

  void WriteTurn(size_t i) {
    const ChatMessage& turn = turns_[i];
    // A reminder stands after the header of the user turn in front of it, if there is one.
    if (turn.role != Role::kLatestReminder) ends_with_header_ = false;
    switch (turn.role) {
      case Role::kSystem:
        if (IsLaterSystem(i)) Control(ids_.system);  // at index 0 it is already there
        Text(turn.content);
        break;
      case Role::kUser:
        Control(ids_.user);
        Text(turn.content);
        break;
      case Role::kLatestReminder:
        Control(ids_.latest_reminder);
        Text(turn.content);
        break;
      case Role::kAssistant:
        WriteAssistant(i);
        break;
    }
    if (OpensAnswer(i)) WriteHeader(i);
  }

  void WriteAssistant(size_t i) {
    if (KeepsReasoning(i)) {
      Text(turns_[i].reasoning);
      Control(ids_.think_end);
      prompt_.starts_in_reasoning = false;
    }
    Text(turns_[i].content);
    Control(ids_.eos);
  }

  // Section 3: whether the assistant header follows turn `i`.
  bool OpensAnswer(size_t i) const {
    if (turns_[i].role != Role::kUser && !IsLaterSystem(i)) return false;
    if (i + 1 == turns_.size()) return true;
    const Role next = turns_[i + 1].role;
    return next == Role::kAssistant || next == Role::kLatestReminder;
  }

  void WriteHeader(size_t i) {
    prompt_.starts_in_reasoning = KeepsReasoning(i);
    Control(ids_.assistant);
    Control(prompt_.starts_in_reasoning ? ids_.think_begin : ids_.think_end);
    ends_with_header_ = true;
  }

  void Control(TokenId id) { prompt_.pieces.AddControl(id); }
  void Text(std::string_view text) { prompt_.pieces.AddText(text); }

  const ControlIds& ids_;
  const ChatOptions& options_;
  const std::vector<ChatMessage> turns_;
  const std::optional<size_t> last_user_;
  ChatPrompt prompt_;
  bool ends_with_header_ = false;  // the model may speak now
};

struct EffortName {
  std::string_view name;
  ReasoningMode mode;
};

constexpr EffortName kEffortNames[] = {
    {"none", {.thinking = false}},     {"off", {.thinking = false}},
    {"disabled", {.thinking = false}}, {"minimal", {.effort = kLowEffort}},
    {"low", {.effort = kLowEffort}},   {"medium", {.effort = kHighEffort}},
    {"high", {.effort = kHighEffort}}, {"xhigh", {.effort = kHighEffort}},
    {"max", {.effort = kMaxEffort}},   {"ultra", {.effort = kMaxEffort}},
};

bool IsEffort(int value) {
  return value >= 1 && value <= 100;
}

}  // namespace

Result<ChatEncoder> ChatEncoder::Create(const Tokenizer& tokenizer) {
  MILLRACE_ASSIGN_OR_RETURN(const ControlIds ids, ControlIds::Find(tokenizer));
  return ChatEncoder(tokenizer, ids);
}

Result<ChatPrompt> ChatEncoder::Render(const ChatRequest& request) const {
  if (request.messages.empty()) {
    return Error(ErrorCode::kInvalidArgument, "messages is empty; give at least one message");
  }
  if (request.options.thinking && !IsEffort(request.options.reasoning_effort)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("invalid reasoning effort {}; give a number from 1 to 100",
                             request.options.reasoning_effort));
  }
  return Renderer(ids_, request.options, Turns(request.messages)).Render();
}

Result<ReasoningMode> ParseReasoningEffort(std::string_view value) {
  const auto named = std::ranges::find(kEffortNames, value, &EffortName::name);
  if (named != std::end(kEffortNames)) return named->mode;
  const bool digits =
      !value.empty() && std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; });
  int effort = 0;
  if (digits && std::from_chars(value.data(), value.data() + value.size(), effort).ec == std::errc() &&
      IsEffort(effort)) {
    return ReasoningMode{.thinking = true, .effort = effort};
  }
  return Error(
      ErrorCode::kInvalidArgument,
      fmt::format("invalid reasoning effort \"{}\"; give none, minimal, low, medium, high, xhigh, max or a "
                  "number from 1 to 100",
                  value.substr(0, 64)));
}

}  // namespace millrace::text
