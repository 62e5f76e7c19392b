#include "api/api_error.h"

#include <fmt/format.h>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <array>

#include "base/check.h"
#include "text/utf8.h"

namespace millrace::api {
namespace {

struct ErrorRow {
  ApiErrorKind kind;
  int status;
  std::string_view type;
  std::string_view code;
  std::string_view anthropic_type;
  int retry_after_seconds;
};

constexpr std::string_view kRequest = "invalid_request_error";
constexpr std::string_view kServer = "server_error";
// Anthropic's own.
constexpr std::string_view kNotFound = "not_found_error";
constexpr std::string_view kTooLarge = "request_too_large";
constexpr std::string_view kOverloaded = "overloaded_error";
constexpr std::string_view kApi = "api_error";

constexpr std::array<ErrorRow, 21> kRows = {{
    {ApiErrorKind::kInvalidType, 400, kRequest, "invalid_type", kRequest, 0},
    {ApiErrorKind::kInvalidValue, 400, kRequest, "invalid_value", kRequest, 0},
    {ApiErrorKind::kMissingField, 400, kRequest, "missing_required_parameter", kRequest, 0},
    {ApiErrorKind::kUnsupportedField, 400, kRequest, "unsupported_parameter", kRequest, 0},
    {ApiErrorKind::kInvalidJson, 400, kRequest, "invalid_json", kRequest, 0},
    {ApiErrorKind::kMalformedHttp, 400, kRequest, "malformed_request", kRequest, 0},
    {ApiErrorKind::kUnsupportedTransferEncoding, 501, kRequest, "unsupported_transfer_encoding", kRequest, 0},
    {ApiErrorKind::kUnauthorized, 401, kRequest, "invalid_api_key", "authentication_error", 0},
    {ApiErrorKind::kContextLength, 400, kRequest, "context_length_exceeded", kRequest, 0},
    {ApiErrorKind::kModelNotFound, 404, kRequest, "model_not_found", kNotFound, 0},
    {ApiErrorKind::kRouteNotFound, 404, kRequest, "unknown_url", kNotFound, 0},
    {ApiErrorKind::kMethodNotAllowed, 405, kRequest, "method_not_allowed", kRequest, 0},
    {ApiErrorKind::kBodyTooLarge, 413, kRequest, "request_too_large", kTooLarge, 0},
    {ApiErrorKind::kHeadersTooLarge, 431, kRequest, "headers_too_large", kTooLarge, 0},
    {ApiErrorKind::kQueueFull, 429, "rate_limit_error", "queue_full", "rate_limit_error", 2},
    {ApiErrorKind::kQueueTimeout, 429, "rate_limit_error", "queue_timeout", "rate_limit_error", 2},
    {ApiErrorKind::kOverloaded, 503, kServer, "overloaded", kOverloaded, 1},
    {ApiErrorKind::kDraining, 503, kServer, "shutting_down", kOverloaded, 5},
    {ApiErrorKind::kTimeout, 504, "timeout_error", "request_timeout", "timeout_error", 0},
    {ApiErrorKind::kCancelled, 500, kServer, "generation_cancelled", kApi, 0},
    {ApiErrorKind::kInternal, 500, kServer, "internal_error", kApi, 0},
}};

constexpr bool RowsAreInOrder() {
  for (size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<size_t>(kRows[i].kind) != i) return false;
  return static_cast<size_t>(ApiErrorKind::kInternal) + 1 == kRows.size();
}
static_assert(RowsAreInOrder(), "one row for each ApiErrorKind, in the order of the enum");

const ErrorRow& RowOf(ApiErrorKind kind) {
  return kRows[static_cast<size_t>(kind)];
}

}  // namespace

int ApiError::status(Dialect dialect) const {
  constexpr int kAnthropicOverloaded = 529;
  const ErrorRow& row = RowOf(kind);
  return dialect == Dialect::kAnthropic && row.anthropic_type == kOverloaded ? kAnthropicOverloaded
                                                                             : row.status;
}
std::string_view ApiError::type(Dialect dialect) const {
  return dialect == Dialect::kAnthropic ? RowOf(kind).anthropic_type : RowOf(kind).type;
}
std::string_view ApiError::code() const {
  return RowOf(kind).code;
}
int ApiError::retry_after_seconds() const {
  return retry_after.value_or(RowOf(kind).retry_after_seconds);
}

namespace {

// Clients of Anthropic's look for its own words, to make the conversation shorter.
std::string MessageFor(const ApiError& error, Dialect dialect) {
  if (dialect != Dialect::kAnthropic || !error.excess) return error.message;
  return fmt::format("prompt is too long: {} tokens > {} maximum", error.excess->prompt_tokens,
                     error.excess->max_tokens);
}

}  // namespace

std::string ErrorJson(const ApiError& error, const ErrorStyle& style) {
  boost::json::object body;
  boost::json::object detail;
  // It may quote what a client sent.
  detail["message"] = text::RepairUtf8(MessageFor(error, style.dialect));
  detail["type"] = error.type(style.dialect);
  if (style.dialect == Dialect::kAnthropic) {
    body["type"] = "error";
    body["error"] = std::move(detail);
    body["request_id"] = style.request_id;
    return boost::json::serialize(body);
  }
  if (error.param.empty()) {
    detail["param"] = nullptr;
  } else {
    detail["param"] = error.param;
  }
  detail["code"] = error.code();
  body["error"] = std::move(detail);
  return boost::json::serialize(body);
}

ApiError FromEngineError(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kMismatch:
      return {ApiErrorKind::kInvalidValue, error.message(), ""};
    case ErrorCode::kResourceExhausted:
      return {ApiErrorKind::kQueueFull, error.message(), ""};
    case ErrorCode::kUnavailable:
      return {ApiErrorKind::kDraining, error.message(), ""};
    case ErrorCode::kDeadlineExceeded:
      return {ApiErrorKind::kTimeout, error.message(), ""};
    case ErrorCode::kCancelled:
      return {ApiErrorKind::kCancelled, error.message(), ""};
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
    case ErrorCode::kIo:
      break;
  }
  return {ApiErrorKind::kInternal, error.message(), ""};
}

}  // namespace millrace::api
