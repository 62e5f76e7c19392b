#include "api/error_response.h"

#include <string>
#include <utility>

namespace millrace::api {

HttpResponse ErrorResponse(const ApiError& error, HttpHeaders headers, const ErrorStyle& style) {
  HttpResponse response;
  response.status = error.status(style.dialect);
  response.headers = std::move(headers);
  response.body = ErrorJson(error, style);
  if (const int seconds = error.retry_after_seconds(); seconds > 0)
    response.headers.emplace_back("Retry-After", std::to_string(seconds));
  return response;
}

}  // namespace millrace::api
