#pragma once

#include <cstdint>
#include <string_view>

namespace millrace::api {

// Whose API a client speaks: decides the form of errors.
enum class Dialect : uint8_t { kOpenAi, kAnthropic };

// By the path that was asked for: all below /v1/messages is Anthropic's.
constexpr Dialect DialectOf(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  const bool below =
      path.starts_with(kMessages) && (path.size() == kMessages.size() || path[kMessages.size()] == '/');
  return below ? Dialect::kAnthropic : Dialect::kOpenAi;
}

}  // namespace millrace::api
