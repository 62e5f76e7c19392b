#pragma once

#include <string_view>
#include <variant>

#include "api/api_error.h"
#include "api/chat_defaults.h"
#include "api/responses_request.h"
#include "text/chat_model.h"

namespace millrace::api {

// The body of POST /v1/responses as OpenAI documents it: bytes from outside to a request whose every value is
// in range, or the first error, which names the field's path, the value found and what is accepted. Unknown
// fields are ignored, as are those that only matter to a server that keeps conversations; what asks for such
// a server is refused ("previous_response_id", ...). `defaults`: of bodies that do not say whether to think.
// `model`: whose names of tools are written. Any thread; nothing is kept.
std::variant<ResponsesRequest, ApiError> DecodeResponsesRequest(
    std::string_view body, const ChatDefaults& defaults = {}, text::ChatModel model = text::ChatModel::kV41);

}  // namespace millrace::api
