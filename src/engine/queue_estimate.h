#pragma once

#include <cstdint>
#include <optional>

#include "engine/stats_board.h"

namespace millrace::engine {

// When what waits in the queue will have been worked off, at the rate of the last half minute of work:
// its prompts, and for each an answer as long as others were. nullopt: nothing was computed yet.
std::optional<double> QueueSeconds(const EngineStats& stats);

// The same for an HTTP Retry-After: whole seconds, from 1 to kMaxRetryAfterSeconds.
int RetryAfterSeconds(const EngineStats& stats);

// Clients of OpenAI's packages ignore larger ones.
inline constexpr int kMaxRetryAfterSeconds = 60;

}  // namespace millrace::engine
