#pragma once

#include <string_view>
#include <variant>

#include "api/api_error.h"
#include "api/chat_defaults.h"
#include "api/requests.h"

namespace millrace::api {

// The body of POST /v1/completions and of POST /v1/chat/completions as OpenAI (and vLLM, for what it adds)
// documents them: bytes from outside to a request whose every value is in range, or the first error, which
// names the field's path, the value found and what is accepted. Types are strict: "1" is not 1 and 1.0 is not
// an integer. Unknown fields are ignored; a known field that would change the answer and that this server
// does not have (tools, logit_bias, ...) is refused unless its value asks for nothing. Invalid UTF-8 and lone
// surrogates become U+FFFD. `defaults`: of chats that do not say whether to think. Any thread; nothing is
// kept.
std::variant<CompletionRequest, ApiError> DecodeCompletionRequest(std::string_view body);
std::variant<ChatCompletionRequest, ApiError> DecodeChatRequest(std::string_view body,
                                                                const ChatDefaults& defaults = {});

}  // namespace millrace::api
