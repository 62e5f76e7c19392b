#pragma once

#include <vector>

#include "api/field_reader.h"
#include "text/chat_message.h"
#include "text/chat_model.h"

namespace millrace::api {

// The "messages" of a chat/completions body. `continue_final`: set when the last message says that it is to
// be continued ("prefix": true). What a message cannot be in the prompt is an error with its path: an image,
// a sound, a role that nobody has.
std::vector<text::ChatMessage> ReadMessages(FieldReader& body, text::ChatModel model, bool& continue_final);

}  // namespace millrace::api
