#pragma once

#include <optional>
#include <string_view>

#include "api/chat_defaults.h"
#include "api/field_reader.h"
#include "text/chat_message.h"
#include "text/reasoning_effort.h"

namespace millrace::api {

// How clients say whether and how hard the model is to think (chat-encoding.md, section 4). Each reader gives
// nullopt for what is absent, and for what is wrong, which is then recorded.

// An effort: a name, a number from 1 to 100, or that number as a string.
std::optional<text::ReasoningMode> ReadEffort(FieldReader& reader, std::string_view key);

// The body's "thinking": {"type": "enabled" | "disabled" | "adaptive"}.
std::optional<bool> ReadThinkingType(FieldReader& body);

// What a wish to think and an effort make together: without the former the latter decides, without both the
// defaults, and without these the model thinks. An effort of "none" beside a wish to think counts as not
// given.
void SetThinking(std::optional<bool> thinking, std::optional<text::ReasoningMode> effort,
                 const ChatDefaults& defaults, text::ChatOptions& options);

// All of it as chat/completions spells it: thinking.type, chat_template_kwargs, enable_thinking,
// reasoning_effort. `effort`: what the dialect's own field says; it goes before the other efforts.
void ReadThinking(FieldReader& body, std::optional<text::ReasoningMode> effort, const ChatDefaults& defaults,
                  text::ChatOptions& options);

}  // namespace millrace::api
