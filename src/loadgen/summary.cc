#include "loadgen/summary.h"

#include <algorithm>

namespace millrace::loadgen {

void Summary::Add(const RequestRecord& record) {
  ++requests;
  for (const Failure& refusal : record.refusals) ++refusals[refusal.Name()];
  if (record.failure) {
    FailureCount& same = failures[record.failure->Name()];
    if (same.count++ == 0) same.example = record.failure->detail;
    return;
  }
  if (record.left) {
    ++left;
    return;
  }
  ++succeeded;
  const auto n_events = static_cast<int64_t>(record.text_times.size());
  int64_t n_tokens = n_events;
  if (record.usage) {
    n_tokens = record.usage->completion_tokens;
    prompt_tokens += record.usage->prompt_tokens;
    cached_tokens += record.usage->cached_tokens.value_or(0);
    tells_cached_tokens = tells_cached_tokens || record.usage->cached_tokens.has_value();
  } else {
    ++without_usage;
  }
  completion_tokens += n_tokens;
  e2e_s.Add(Seconds(record.ended - record.sent));
  if (n_events == 0) return;
  ttft_s.Add(Seconds(record.text_times.front() - record.sent));
  for (size_t i = 1; i < record.text_times.size(); ++i)
    gap_s.Add(Seconds(record.text_times[i] - record.text_times[i - 1]));
  const double decode_s = Seconds(record.text_times.back() - record.text_times.front());
  if (n_events < 2 || n_tokens < 2 || decode_s <= 0) return;
  const auto n_timed = static_cast<double>(n_tokens - 1);
  tpot_s.Add(decode_s / n_timed);
  slowest_tok_s = std::min(slowest_tok_s.value_or(n_timed / decode_s), n_timed / decode_s);
}

}  // namespace millrace::loadgen
