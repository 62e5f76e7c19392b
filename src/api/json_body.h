#pragma once

#include <boost/json/value.hpp>

#include <cstddef>
#include <string_view>
#include <variant>

#include "api/api_error.h"

// Heavy header (Boost.JSON): for the decoders' .cc files only.

namespace millrace::api {

// What parsing one body may cost. A document of many small values takes several times its text in memory.
struct JsonLimits {
  size_t max_depth = 64;
  size_t max_memory_bytes = size_t{512} << 20;
};

// Parses a request body after repairing it; its root must be an object. Errors say at which byte.
std::variant<boost::json::object, ApiError> ParseJsonBody(std::string_view body,
                                                          const JsonLimits& limits = {});

}  // namespace millrace::api
