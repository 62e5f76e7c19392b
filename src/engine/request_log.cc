#include "engine/request_log.h"

#include "base/log.h"

namespace millrace::engine {

void LogFinished(const std::string& request_id, const FinishEvent& event) {
  const RequestTimes& times = event.times;
  const double decode_seconds = times.finished - times.first_token;
  const double tokens_per_second = event.generated_tokens > 1 && decode_seconds > 0
                                       ? static_cast<double>(event.generated_tokens - 1) / decode_seconds
                                       : 0;
  const auto line = fmt::format(
      "request {}: prompt {} tokens ({} cached), generated {}, queued {:.3f} s, ttft {:.3f} s, total {:.3f} "
      "s, "
      "decode {:.1f} tok/s, reason {}",
      request_id.empty() ? "-" : request_id, event.prompt_tokens, event.cached_tokens, event.generated_tokens,
      times.admitted, times.first_token, times.finished, tokens_per_second, FinishReasonName(event.reason));
  if (event.reason == FinishReason::kError && event.error) {
    spdlog::error("{}: {}", line, event.error->message());
  } else {
    spdlog::debug("{}", line);
  }
}

void LogLostFinish(const std::string& request_id, const std::string& what) {
  spdlog::error("request {}: its sink failed while it was told the end: {}", request_id, what);
}

}  // namespace millrace::engine
