#include "engine/overdue.h"

#include <fmt/format.h>

namespace millrace::engine {

std::optional<Error> Overdue(const RequestLimits& limits, bool waiting,
                             std::chrono::steady_clock::time_point now) {
  using Seconds = std::chrono::duration<double>;
  const Seconds age = now - limits.submitted;
  if (limits.deadline && now >= *limits.deadline) {
    const Seconds since_arrival = now - limits.arrival.value_or(limits.submitted);
    return Error(ErrorCode::kDeadlineExceeded,
                 fmt::format("the request's time is up: it {} after {:.3g} s; allow more time, ask for fewer "
                             "tokens, or send a shorter prompt",
                             waiting ? "still waits for a slot" : "is not done", since_arrival.count()));
  }
  if (waiting && limits.max_queue_seconds > 0 && age.count() >= limits.max_queue_seconds) {
    return Error(
        ErrorCode::kResourceExhausted,
        fmt::format("the request has waited {:.3g} s for a slot, {:.3g} s is this server's limit; try "
                    "again later",
                    age.count(), limits.max_queue_seconds));
  }
  return std::nullopt;
}

}  // namespace millrace::engine
