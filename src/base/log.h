#pragma once

#include <spdlog/spdlog.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace millrace {

enum class LogFormat : uint8_t {
  kText,  // "2026-01-02T03:04:05.678 info message"
  kJson,  // {"time":"2026-01-02T03:04:05.678+00:00","level":"info","message":"message"}
};

// Sends the process's log to stderr at `level` (trace, debug, info, warning, error, off); stdout stays free
// for results. Call once from main, before any thread logs.
Status SetUpLog(std::string_view level, LogFormat format = LogFormat::kText);

// One fact of an event: a name in snake_case and its value.
struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double, bool> value;
};

// Logs an event with its facts at info, for people as "name key=value key=value" and as JSON with a member
// for each fact: {"time","level","event":"name","key":value}. Any thread.
void LogEvent(std::string_view name, std::span<const LogField> fields);

// The event as LogEvent writes it, without time and level (in JSON the members alone, without braces).
std::string FormatEvent(std::string_view name, std::span<const LogField> fields, LogFormat format);

}  // namespace millrace
