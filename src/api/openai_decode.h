#pragma once

#include <string_view>
#include <variant>

#include "api/api_error.h"
#include "api/chat_defaults.h"
#include "api/requests.h"
#include "text/chat_model.h"

namespace millrace::api {

// The body of POST /v1/completions and of POST /v1/chat/completions as OpenAI (and vLLM, for what it adds)
// documents them: bytes from outside to a request whose every value is in range, or the first error, which
// names the field's path, the value found and what is accepted. Types are strict: "1" is not 1 and 1.0 is not
// an integer. Unknown fields are ignored; a known field that would change the answer and that this server
// does not have (functions, response_format, ...) is refused unless its value asks for nothing. Invalid UTF-8
// and lone surrogates become U+FFFD. Any thread; nothing is kept.
std::variant<CompletionRequest, ApiError> DecodeCompletionRequest(std::string_view body);
// `defaults`: of chats that do not say whether to think. `model`: whose names of tools a chat writes.
std::variant<ChatCompletionRequest, ApiError> DecodeChatRequest(
    std::string_view body, const ChatDefaults& defaults = {}, text::ChatModel model = text::ChatModel::kV41);

}  // namespace millrace::api
