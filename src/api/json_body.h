#pragma once

#include <string_view>
#include <variant>

#include "api/api_error.h"
#include "text/ordered_json.h"

namespace millrace::api {

// What one body may cost its reader. A value takes up to a hundred bytes in memory, whatever its text.
inline constexpr text::OrderedJsonLimits kBodyLimits = {.max_depth = 128, .max_values = size_t{3} << 20};

// Parses a request body after repairing it; its root is an object. Errors say at which line and column; a
// body of too many values is kBodyTooLarge.
std::variant<text::OrderedJson, ApiError> ParseJsonBody(std::string_view body,
                                                        const text::OrderedJsonLimits& limits = kBodyLimits);

}  // namespace millrace::api
