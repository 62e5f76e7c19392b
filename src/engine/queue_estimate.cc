#include "engine/queue_estimate.h"

#include <algorithm>
#include <cmath>

namespace millrace::engine {

std::optional<double> QueueSeconds(const EngineStats& stats) {
  if (stats.tokens_per_second <= 0) return std::nullopt;
  const double tokens = static_cast<double>(stats.waiting_tokens) +
                        static_cast<double>(stats.waiting) * stats.mean_answer_tokens;
  return tokens / stats.tokens_per_second;
}

int RetryAfterSeconds(const EngineStats& stats) {
  constexpr double kUnknown = 2;
  const double seconds = std::ceil(QueueSeconds(stats).value_or(kUnknown));
  return static_cast<int>(std::clamp(seconds, 1.0, double{kMaxRetryAfterSeconds}));
}

}  // namespace millrace::engine
