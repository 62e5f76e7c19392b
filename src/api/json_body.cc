#include "api/json_body.h"

#include <fmt/format.h>

#include <utility>

namespace millrace::api {
namespace {

ApiError NotJson(std::string why) {
  return {ApiErrorKind::kInvalidJson, std::move(why), ""};
}

}  // namespace

std::variant<text::OrderedJson, ApiError> ParseJsonBody(std::string_view body,
                                                        const text::OrderedJsonLimits& limits) {
  if (body.empty()) return NotJson("The request body is empty; a JSON object was expected.");
  Result<text::OrderedJson> root = text::ParseOrderedJson(body, limits);
  if (!root.ok() && root.error().code() == ErrorCode::kResourceExhausted) {
    return ApiError{ApiErrorKind::kBodyTooLarge,
                    fmt::format("The request body is too large: {}. Send less.", root.error().message()), ""};
  }
  if (!root.ok()) return NotJson(fmt::format("The request body is {}.", root.error().message()));
  if (root->if_object() == nullptr) return NotJson("The request body is JSON, but not an object.");
  return std::move(root).value();
}

}  // namespace millrace::api
