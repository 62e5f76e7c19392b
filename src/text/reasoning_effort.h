#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/chat_model.h"

namespace millrace::text {

// What the names of efforts stand for on the scale from 1 to 100 (chat encoding, section 4).
inline constexpr int kLowEffort = 50;
inline constexpr int kHighEffort = 75;
inline constexpr int kMaxEffort = 100;

constexpr bool IsReasoningEffort(int effort) {
  return effort >= 1 && effort <= 100;
}

// What a request's reasoning effort asks for.
struct ReasoningMode {
  bool thinking = true;
  std::optional<int> effort = {};  // set if `thinking`
};

// Reads an effort as clients spell it: a name of section 4's table, or a number from 1 to 100 as decimal
// digits. The same for both models, because the number is folded where the prompt is written.
// kInvalidArgument for anything else, listing what is accepted.
Result<ReasoningMode> ParseReasoningEffort(std::string_view value);

// The text at the start of a thinking prompt that sets the effort. V4.1 names the number, 75 if none is
// given. V4 knows three degrees: nothing for 1 to 50 and when none is given, one text for 51 to 75, another
// above. `effort` is none or from 1 to 100.
std::string EffortText(ChatModel model, std::optional<int> effort);

}  // namespace millrace::text
