#include "api/chat_defaults.h"

#include <fmt/format.h>

#include <string>

#include "api/field_reader.h"
#include "api/json_body.h"
#include "api/thinking_options.h"

namespace millrace::api {
namespace {

constexpr std::string_view kEffort = "reasoning_effort";

Error Invalid(std::string_view message) {
  return Error(ErrorCode::kInvalidArgument, std::string(message));
}

}  // namespace

Result<ChatDefaults> ParseChatDefaults(std::string_view json) {
  auto parsed = ParseJsonBody(json);
  if (std::holds_alternative<ApiError>(parsed)) {
    return Invalid(fmt::format(
        "'{}' is not a JSON object, as {{\"thinking\": true}} is (in a shell it has to be quoted)", json));
  }
  const auto& object = std::get<text::OrderedJson>(parsed);
  for (const text::OrderedJson::Member& member : *object.if_object()) {
    const std::string& key = member.key;
    if (key == "thinking" || key == "enable_thinking" || key == kEffort) continue;
    return Invalid(
        fmt::format("'{}' is no default that this server knows; give thinking, enable_thinking or "
                    "reasoning_effort",
                    key));
  }
  FirstError error;
  FieldReader reader(object, "", error);
  ChatDefaults defaults;
  const std::optional<bool> thinking = reader.Bool("thinking"), enable = reader.Bool("enable_thinking");
  defaults.thinking = thinking ? thinking : enable;
  if (const std::optional<text::ReasoningMode> mode = ReadEffort(reader, kEffort)) {
    if (mode->thinking) defaults.reasoning_effort = mode->effort;
    if (!defaults.thinking) defaults.thinking = mode->thinking;
  }
  if (error.set()) return Invalid(error.Take().message);
  return defaults;
}

}  // namespace millrace::api
