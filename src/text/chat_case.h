#pragma once

#include "base/result.h"
#include "text/chat_message.h"
#include "text/chat_model.h"
#include "text/ordered_json.h"

namespace millrace::text {

// A conversation of a test-vector file, as the reference encoders take it: messages in the OpenAI form and
// options of their own (chat encoding, section 14). Unlike an endpoint it is read strictly where the
// reference is strict (names of efforts) and loosely where that is loose (unknown kinds of parts).
struct ChatCase {
  ChatModel model = ChatModel::kV41;
  ChatRequest request;  // ends as the format alone has it: no header is added for the model to speak
};

// Reads an object with "messages" and perhaps "model" ("v4.1" or "v4", else `default_model`), "tools",
// "response_format" and "options". Other fields are ignored. kInvalidArgument naming the field and its value.
Result<ChatCase> ReadChatCase(const OrderedJson& value, ChatModel default_model);

// "v41", "v4.1" or "v4". kInvalidArgument otherwise.
Result<ChatModel> ParseChatModel(std::string_view name);

}  // namespace millrace::text
