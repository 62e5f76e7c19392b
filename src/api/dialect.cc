#include "api/dialect.h"

namespace millrace::api {

Dialect DialectOf(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  if (!path.starts_with(kMessages)) return Dialect::kOpenAi;
  const std::string_view rest = path.substr(kMessages.size());
  return rest.empty() || rest.front() == '/' ? Dialect::kAnthropic : Dialect::kOpenAi;
}

}  // namespace millrace::api
