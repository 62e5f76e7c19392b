#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

#include "base/result.h"

namespace millrace {

// Sends the process's log to stderr at `level` (trace, debug, info, warning, error, off); stdout stays free
// for results. Call once from main, before any thread logs.
Status SetUpLog(std::string_view level);

}  // namespace millrace
