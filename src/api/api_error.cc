#include "api/api_error.h"

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
  int retry_after_seconds;
};

constexpr std::string_view kRequest = "invalid_request_error";
constexpr std::string_view kServer = "server_error";

constexpr std::array<ErrorRow, 18> kRows = {{
    {ApiErrorKind::kInvalidType, 400, kRequest, "invalid_type", 0},
    {ApiErrorKind::kInvalidValue, 400, kRequest, "invalid_value", 0},
    {ApiErrorKind::kMissingField, 400, kRequest, "missing_required_parameter", 0},
    {ApiErrorKind::kUnsupportedField, 400, kRequest, "unsupported_parameter", 0},
    {ApiErrorKind::kInvalidJson, 400, kRequest, "invalid_json", 0},
    {ApiErrorKind::kMalformedHttp, 400, kRequest, "malformed_request", 0},
    {ApiErrorKind::kUnsupportedTransferEncoding, 501, kRequest, "unsupported_transfer_encoding", 0},
    {ApiErrorKind::kContextLength, 400, kRequest, "context_length_exceeded", 0},
    {ApiErrorKind::kModelNotFound, 404, kRequest, "model_not_found", 0},
    {ApiErrorKind::kRouteNotFound, 404, kRequest, "unknown_url", 0},
    {ApiErrorKind::kMethodNotAllowed, 405, kRequest, "method_not_allowed", 0},
    {ApiErrorKind::kBodyTooLarge, 413, kRequest, "request_too_large", 0},
    {ApiErrorKind::kHeadersTooLarge, 431, kRequest, "headers_too_large", 0},
    {ApiErrorKind::kQueueFull, 429, "rate_limit_error", "queue_full", 2},
    {ApiErrorKind::kOverloaded, 503, kServer, "overloaded", 1},
    {ApiErrorKind::kDraining, 503, kServer, "shutting_down", 5},
    {ApiErrorKind::kCancelled, 500, kServer, "generation_cancelled", 0},
    {ApiErrorKind::kInternal, 500, kServer, "internal_error", 0},
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

int ApiError::status() const {
  return RowOf(kind).status;
}
std::string_view ApiError::type() const {
  return RowOf(kind).type;
}
std::string_view ApiError::code() const {
  return RowOf(kind).code;
}
int ApiError::retry_after_seconds() const {
  return RowOf(kind).retry_after_seconds;
}

std::string ErrorJson(const ApiError& error) {
  boost::json::object detail;
  // It may quote what a client sent.
  detail["message"] = text::RepairUtf8(error.message);
  detail["type"] = error.type();
  if (error.param.empty()) {
    detail["param"] = nullptr;
  } else {
    detail["param"] = error.param;
  }
  detail["code"] = error.code();
  boost::json::object body;
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
