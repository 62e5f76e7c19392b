#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <array>
#include <string>

namespace millrace {

Status SetUpLog(std::string_view level) {
  constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info", "warning", "error", "off"};
  bool known = false;
  for (std::string_view name : kLevels) known = known || name == level;
  if (!known) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("log level '{}' is unknown; use trace, debug, info, warning, error or off", level));
  }
  auto logger =
      std::make_shared<spdlog::logger>("millrace", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  logger->set_level(spdlog::level::from_str(std::string(level)));
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace millrace
