#pragma once

#include <optional>
#include <vector>

#include "api/field_reader.h"
#include "text/chat_message.h"

namespace millrace::api {

// "system" of a body of Anthropic's as the message in front of the conversation; nullopt: there is none.
std::optional<text::ChatMessage> ReadAnthropicSystem(FieldReader& body);

// "messages": at least one, unless an error is recorded. The results in a user message become messages of
// their own, in place.
std::vector<text::ChatMessage> ReadAnthropicMessages(FieldReader& body);

}  // namespace millrace::api
