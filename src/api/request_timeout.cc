#include "api/request_timeout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace millrace::api {

std::variant<std::optional<std::chrono::steady_clock::time_point>, ApiError> AnswerDeadline(
    const HttpRequest& request, std::chrono::steady_clock::time_point arrival, double server_limit_seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr double kLongest = 1e9;  // what a clock can add
  const std::string_view given = FindHeader(request.headers, kRequestTimeoutHeader);
  double seconds = server_limit_seconds > 0 ? server_limit_seconds : kLongest;
  if (!given.empty()) {
    double asked = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), asked);
    if (error != std::errc() || end != given.data() + given.size() || !(asked > 0)) {
      return ApiError{
          ApiErrorKind::kInvalidValue,
          fmt::format("Invalid header {}: '{}'. Expected a number of seconds above 0, such as 120.",
                      kRequestTimeoutHeader, given),
          kRequestTimeoutHeader};
    }
    seconds = std::min(seconds, asked);
  }
  if (seconds >= kLongest) return std::optional<Clock::time_point>();
  const std::chrono::duration<double> limit(seconds);
  return std::optional(arrival + std::chrono::duration_cast<Clock::duration>(limit));
}

}  // namespace millrace::api
