#include "api/error_response.h"

#include <fmt/format.h>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <utility>

#include "text/utf8.h"

namespace millrace::api {
namespace {

constexpr int kAnthropicOverloaded = 529;

int StatusOf(Dialect dialect, const ApiError& error) {
  const int status = error.status();
  return dialect == Dialect::kAnthropic && status == 503 ? kAnthropicOverloaded : status;
}

std::string_view AnthropicType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case kAnthropicOverloaded:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

std::string AnthropicErrorJson(const ApiError& error, std::string_view request_id) {
  boost::json::object detail;
  detail["type"] = AnthropicType(StatusOf(Dialect::kAnthropic, error));
  detail["message"] = error.excess ? fmt::format("prompt is too long: {} tokens > {} maximum",
                                                 error.excess->prompt_tokens, error.excess->max_tokens)
                                   : text::RepairUtf8(error.message);
  boost::json::object body;
  body["type"] = "error";
  body["error"] = std::move(detail);
  body["request_id"] = request_id;
  return boost::json::serialize(body);
}

HttpResponse ErrorResponse(Dialect dialect, const ApiError& error, std::string_view request_id,
                           HttpHeaders headers) {
  HttpResponse response;
  response.status = StatusOf(dialect, error);
  response.headers = std::move(headers);
  response.body = dialect == Dialect::kAnthropic ? AnthropicErrorJson(error, request_id) : ErrorJson(error);
  if (const int seconds = error.retry_after_seconds(); seconds > 0)
    response.headers.emplace_back("Retry-After", std::to_string(seconds));
  return response;
}

HttpResponse ErrorResponse(const ApiError& error, HttpHeaders headers) {
  return ErrorResponse(Dialect::kOpenAi, error, "", std::move(headers));
}

}  // namespace millrace::api
