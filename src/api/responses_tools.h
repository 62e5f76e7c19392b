#pragma once

#include "api/field_reader.h"
#include "api/responses_request.h"
#include "text/chat_model.h"

namespace millrace::api {

// "tools" and "tool_choice" of a Responses body. Functions are shown with name, description and parameters,
// those of a namespace group with its name and description in front (chat-encoding.md, section 7). A custom
// tool is shown as a function of one string. Tools that OpenAI itself would run are left out. A choice of
// allowed tools leaves out the others.
void ReadResponsesTools(FieldReader& body, text::ChatModel model, ResponsesRequest& request);

}  // namespace millrace::api
