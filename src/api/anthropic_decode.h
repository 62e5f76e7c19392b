#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "api/api_error.h"
#include "api/chat_defaults.h"
#include "api/requests.h"
#include "text/chat_model.h"

namespace millrace::api {

enum class AnthropicEndpoint : uint8_t { kMessages, kCountTokens };

// The body of POST /v1/messages or, where only the prompt matters and no limit is asked for, of
// /v1/messages/count_tokens (chat-encoding.md, section 13.4): bytes from outside to a request whose every
// value is in range, or the first error, which names the field's path, the value found and what is accepted.
// Unknown fields are ignored, and so are those that only concern Anthropic's service (metadata,
// cache_control, container, context_management, service_tier, signatures). What would be missing from the
// answer is refused: images, documents that are not text, tools that Anthropic's servers run. Invalid UTF-8
// and lone surrogates become U+FFFD. `defaults`: of
// requests that do not say whether to think. `model`: whose names of tools the prompt has. Any thread;
// nothing is kept.
std::variant<ChatCompletionRequest, ApiError> DecodeAnthropicRequest(std::string_view body,
                                                                     AnthropicEndpoint endpoint,
                                                                     const ChatDefaults& defaults,
                                                                     text::ChatModel model);

}  // namespace millrace::api
