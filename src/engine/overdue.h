#pragma once

#include <chrono>
#include <optional>

#include "base/result.h"

namespace millrace::engine {

// Until when a request may wait and run.
struct RequestLimits {
  std::chrono::steady_clock::time_point submitted;
  std::optional<std::chrono::steady_clock::time_point> deadline = {};  // of its end
  double max_queue_seconds = 0;                                        // without a slot; 0: any
  std::optional<std::chrono::steady_clock::time_point> arrival = {};   // if before it was submitted
};

// Why the request must end at `now`; nullopt: it may go on. kDeadlineExceeded past its deadline,
// kResourceExhausted when it has waited too long for its first slot (`waiting`).
std::optional<Error> Overdue(const RequestLimits& limits, bool waiting,
                             std::chrono::steady_clock::time_point now);

}  // namespace millrace::engine
