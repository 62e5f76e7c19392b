#include "api/thinking_options.h"

#include <string>

namespace millrace::api {

std::optional<text::ReasoningMode> ReadEffort(FieldReader& reader, std::string_view key) {
  constexpr std::string_view kAccepted =
      "none, minimal, low, medium, high, xhigh, max, or an integer between 1 and 100";
  const text::OrderedJson* const value = reader.Find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = AsInt64(*value);
  if (!number && value->if_string() == nullptr) {
    FailType(reader.error(), reader.PathOf(key), *value, kAccepted);
    return std::nullopt;
  }
  const std::string name = number ? std::to_string(*number) : *value->if_string();
  const Result<text::ReasoningMode> mode = text::ParseReasoningEffort(name);
  if (mode.ok()) return *mode;
  FailValue(reader.error(), reader.PathOf(key), *value, kAccepted);
  return std::nullopt;
}

std::optional<bool> ReadThinkingType(FieldReader& body) {
  const text::OrderedJson* const object = body.Object("thinking");
  if (object == nullptr) return std::nullopt;
  FieldReader thinking(*object, body.PathOf("thinking"), body.error());
  const std::optional<std::string> type = thinking.String("type");
  if (!type) return std::nullopt;
  if (*type == "disabled") return false;
  if (*type == "enabled" || *type == "adaptive") return true;
  FailValue(body.error(), thinking.PathOf("type"), *thinking.Find("type"), "enabled, disabled or adaptive");
  return std::nullopt;
}

void SetThinking(std::optional<bool> thinking, std::optional<text::ReasoningMode> effort,
                 const ChatDefaults& defaults, text::ChatOptions& options) {
  options.thinking = thinking.value_or(effort ? effort->thinking : defaults.thinking.value_or(true));
  if (!options.thinking) return;
  const bool given = effort && effort->thinking;
  options.reasoning_effort = given ? effort->effort : defaults.reasoning_effort;
}

void ReadThinking(FieldReader& body, std::optional<text::ReasoningMode> effort, const ChatDefaults& defaults,
                  text::ChatOptions& options) {
  std::optional<bool> thinking = ReadThinkingType(body);
  const std::optional<text::ReasoningMode> top_level_effort = ReadEffort(body, "reasoning_effort");
  if (!effort) effort = top_level_effort;
  if (const text::OrderedJson* const object = body.Object("chat_template_kwargs")) {
    FieldReader kwargs(*object, "chat_template_kwargs", body.error());
    const std::optional<bool> by_thinking = kwargs.Bool("thinking");
    const std::optional<bool> by_enable = kwargs.Bool("enable_thinking");
    const std::optional<text::ReasoningMode> kwargs_effort = ReadEffort(kwargs, "reasoning_effort");
    if (!thinking) thinking = by_thinking ? by_thinking : by_enable;
    if (!effort) effort = kwargs_effort;
  }
  const std::optional<bool> top_level = body.Bool("enable_thinking");
  if (!thinking) thinking = top_level;
  SetThinking(thinking, effort, defaults, options);
}

}  // namespace millrace::api
