#pragma once

#include "api/api_error.h"
#include "api/http_message.h"

namespace millrace::api {

// The error as OpenAI's JSON object with its status and, where it says so, Retry-After.
HttpResponse ErrorResponse(const ApiError& error, HttpHeaders headers = {});

}  // namespace millrace::api
