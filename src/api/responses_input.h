#pragma once

#include <vector>

#include "api/field_reader.h"
#include "text/chat_message.h"
#include "text/chat_model.h"

namespace millrace::api {

// "instructions" and "input" of a Responses body as a conversation: the instructions are the system message
// in front; reasoning, messages of the assistant and calls that stand side by side are one message. Items of
// tools that OpenAI itself ran are left out, as those tools are; what else cannot be shown is an error with
// its path (an image, a reference to a stored item). At least one message.
std::vector<text::ChatMessage> ReadResponsesInput(FieldReader& body, text::ChatModel model);

}  // namespace millrace::api
