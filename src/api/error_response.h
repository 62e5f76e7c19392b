#pragma once

#include "api/api_error.h"
#include "api/http_message.h"

namespace millrace::api {

// The error as the dialect's JSON object with its status and, where it says so, Retry-After.
HttpResponse ErrorResponse(const ApiError& error, HttpHeaders headers = {}, const ErrorStyle& style = {});

}  // namespace millrace::api
