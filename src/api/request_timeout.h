#pragma once

#include <chrono>
#include <optional>
#include <variant>

#include "api/api_error.h"
#include "api/http_message.h"

namespace millrace::api {

// A client's own limit for one answer, in seconds.
inline constexpr const char* kRequestTimeoutHeader = "X-Request-Timeout";

// When the answer to a request that arrived at `arrival` must have ended: by the server's limit (0: none) or
// the client's, whichever is earlier. kInvalidValue for a header that is no positive number of seconds.
std::variant<std::optional<std::chrono::steady_clock::time_point>, ApiError> AnswerDeadline(
    const HttpRequest& request, std::chrono::steady_clock::time_point arrival, double server_limit_seconds);

}  // namespace millrace::api
