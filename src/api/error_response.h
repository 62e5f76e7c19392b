#pragma once

#include <string>
#include <string_view>

#include "api/api_error.h"
#include "api/dialect.h"
#include "api/http_message.h"

namespace millrace::api {

// Anthropic's error object: {"type":"error","error":{"type","message"},"request_id"}, with the words that its
// clients look for when a prompt is too long.
std::string AnthropicErrorJson(const ApiError& error, std::string_view request_id);

// The error as the dialect's JSON object with its status and, where it says so, Retry-After. `request_id` may
// be empty: not known yet.
HttpResponse ErrorResponse(Dialect dialect, const ApiError& error, std::string_view request_id,
                           HttpHeaders headers = {});
// In OpenAI's form, which is also that of what has no dialect.
HttpResponse ErrorResponse(const ApiError& error, HttpHeaders headers = {});

}  // namespace millrace::api
