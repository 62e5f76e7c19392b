#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>

#include "base/json_text.h"

namespace millrace {
namespace {

constexpr const char* kLoggerName = "millrace";
constexpr std::string_view kJsonEvents =
    "millrace events";  // a logger whose messages are JSON members already

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    time_.format(message, out);
    const auto level = spdlog::level::to_string_view(message.level);
    std::string rest = fmt::format("\"level\":\"{}\",", std::string_view(level.data(), level.size()));
    const std::string_view payload(message.payload.data(), message.payload.size());
    if (std::string_view(message.logger_name.data(), message.logger_name.size()) == kJsonEvents) {
      rest += payload;
    } else {
      rest += "\"message\":";
      AppendJsonString(payload, rest);
    }
    rest += "}\n";
    out.append(rest.data(), rest.data() + rest.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }

 private:
  spdlog::pattern_formatter time_{R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z",)", spdlog::pattern_time_type::local,
                                  ""};
};

// In text a value stands bare where that is unmistakable.
bool NeedsQuotes(std::string_view text) {
  return text.empty() || std::ranges::any_of(text, [](char c) {
           return static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7F;
         });
}

// Without an exponent, to the microsecond, without trailing zeros: 0.002633, 18800.2, 3.
std::string FixedPoint(double number) {
  std::string text = fmt::format("{:.6f}", std::isfinite(number) ? number : 0.0);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

void AppendValue(const LogField& field, LogFormat format, std::string& out) {
  if (const auto* const text = std::get_if<std::string_view>(&field.value)) {
    if (format == LogFormat::kJson || NeedsQuotes(*text)) return AppendJsonString(*text, out);
    out += *text;
  } else if (const auto* const whole = std::get_if<int64_t>(&field.value)) {
    fmt::format_to(std::back_inserter(out), "{}", *whole);
  } else if (const auto* const number = std::get_if<double>(&field.value)) {
    out += FixedPoint(*number);
  } else {
    out += std::get<bool>(field.value) ? "true" : "false";
  }
}

}  // namespace

Status SetUpLog(std::string_view level, LogFormat format) {
  constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info", "warning", "error", "off"};
  if (std::ranges::find(kLevels, level) == kLevels.end()) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("log level '{}' is unknown; use trace, debug, info, warning, error or off", level));
  }
  const auto level_number = spdlog::level::from_str(std::string(level));
  if (format == LogFormat::kText) {
    auto logger = std::make_shared<spdlog::logger>(kLoggerName,
                                                   std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    logger->set_level(level_number);
    spdlog::set_default_logger(std::move(logger));
    return {};
  }
  const auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  sink->set_formatter(std::make_unique<JsonFormatter>());
  auto events = std::make_shared<spdlog::logger>(std::string(kJsonEvents), sink);
  events->set_level(level_number);
  spdlog::register_logger(std::move(events));
  auto logger = std::make_shared<spdlog::logger>(kLoggerName, sink);
  logger->set_level(level_number);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

std::string FormatEvent(std::string_view name, std::span<const LogField> fields, LogFormat format) {
  const bool json = format == LogFormat::kJson;
  std::string line;
  if (json) {
    line += "\"event\":";
    AppendJsonString(name, line);
  } else {
    line += name;
  }
  for (const LogField& field : fields) {
    line += json ? "," : " ";
    if (json) {
      AppendJsonString(field.name, line);
    } else {
      line += field.name;
    }
    line += json ? ':' : '=';
    AppendValue(field, format, line);
  }
  return line;
}

void LogEvent(std::string_view name, std::span<const LogField> fields) {
  const std::shared_ptr<spdlog::logger> events = spdlog::get(std::string(kJsonEvents));
  if (events != nullptr) {
    if (events->should_log(spdlog::level::info))
      events->info("{}", FormatEvent(name, fields, LogFormat::kJson));
  } else if (spdlog::should_log(spdlog::level::info)) {
    spdlog::info("{}", FormatEvent(name, fields, LogFormat::kText));
  }
}

}  // namespace millrace
