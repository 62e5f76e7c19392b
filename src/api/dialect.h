#pragma once

#include <cstdint>
#include <string_view>

namespace millrace::api {

// Whose API a client speaks; it decides the shape of errors.
enum class Dialect : uint8_t { kOpenAi, kAnthropic };

// Of a request's path, whether a route exists there or not: Anthropic's is /v1/messages and all below it.
Dialect DialectOf(std::string_view path);

}  // namespace millrace::api
