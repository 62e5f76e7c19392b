#pragma once

#include <string>
#include <string_view>

#include "api/field_reader.h"
#include "text/chat_message.h"
#include "text/chat_model.h"

namespace millrace::api {

// Fields that messages and calls of all OpenAI endpoints have. What is wrong is recorded in the reader's
// error.

// What a message or a result says: a string, null, or a list of parts of text. An image or a sound is refused
// with the part's path.
text::MessageContent ReadContent(FieldReader& message, std::string_view key);

// A call's "arguments": a string of JSON, or the object itself; null and nothing are no arguments.
std::string ReadCallArguments(FieldReader& function);

// A call's "name" as the prompt shows it. `name_space`: the field that stands beside it, nullptr without one.
std::string ReadCallName(FieldReader& function, const text::OrderedJson* name_space, text::ChatModel model);

}  // namespace millrace::api
