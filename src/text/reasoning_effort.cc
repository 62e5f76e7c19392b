#include "text/reasoning_effort.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "formats/json.h"

namespace millrace::text {
namespace {

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

constexpr std::string_view kV4High =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the "
    "root "
    "cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial "
    "scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
    "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";

constexpr std::string_view kV4Max =
    "Reasoning Effort: Beyond maximum \u2014 exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively "
    "decompose the problem into its most fundamental components, trace every causal chain to its root, and "
    "resolve the underlying cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are "
    "certain that no assumption remains unchecked and no error remains undiscovered.\n\n";

std::string_view V4EffortText(int effort) {
  if (effort <= kLowEffort) return "";
  return effort <= kHighEffort ? kV4High : kV4Max;
}

}  // namespace

Result<ReasoningMode> ParseReasoningEffort(std::string_view value) {
  const auto named = std::ranges::find(kEffortNames, value, &EffortName::name);
  if (named != std::end(kEffortNames)) return named->mode;
  const bool digits =
      !value.empty() && std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; });
  int effort = 0;
  if (digits && std::from_chars(value.data(), value.data() + value.size(), effort).ec == std::errc() &&
      IsReasoningEffort(effort)) {
    return ReasoningMode{.thinking = true, .effort = effort};
  }
  return Error(
      ErrorCode::kInvalidArgument,
      fmt::format("invalid reasoning effort {}; give none, minimal, low, medium, high, xhigh, max or "
                  "a number from 1 to 100",
                  formats::Quoted(value)));
}

std::string EffortText(ChatModel model, std::optional<int> effort) {
  if (model == ChatModel::kV4) return std::string(V4EffortText(effort.value_or(kLowEffort)));
  return fmt::format(
      "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
      effort.value_or(kHighEffort));
}

}  // namespace millrace::text
