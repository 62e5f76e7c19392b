#include "engine/repetition_guard.h"

#include <algorithm>

#include "base/check.h"

namespace millrace::engine {

RepetitionGuard::RepetitionGuard(int64_t limit_tokens)
    : limit_tokens_(limit_tokens), max_period_(std::min(kMaxPhraseTokens, limit_tokens / kMinPhraseRepeats)) {
  MILLRACE_CHECK(limit_tokens == 0 || (limit_tokens >= kMinPhraseRepeats && limit_tokens <= UINT32_MAX / 2),
                 "a limit of repetition that no phrase can reach");
  Start();
}

void RepetitionGuard::Start() {
  constexpr TokenId kNone = -1;  // equals no token
  recent_.fill(kNone);
  oldest_ = 0;
  run_tokens_.fill(0);
  repeats_ = false;
}

void RepetitionGuard::OnToken(TokenId token) {
  if (limit_tokens_ == 0) return;
  const auto limit = static_cast<uint32_t>(limit_tokens_);
  const TokenId* const window = recent_.data() + oldest_;
  const size_t first = kSize - static_cast<size_t>(max_period_);
  // Plain loops without branches, for the compiler to vectorise.
  uint32_t longest = 0;
  for (size_t i = first; i < kSize; ++i) {
    const uint32_t run = window[i] == token ? run_tokens_[i] + 1 : 0;
    run_tokens_[i] = run;
    // A run of n tokens makes the last n + period tokens periodic.
    const uint32_t repeated = run == 0 ? 0 : run + static_cast<uint32_t>(kSize - i);
    longest = std::max(longest, repeated);
  }
  repeats_ = longest >= limit;
  recent_[oldest_] = recent_[oldest_ + kSize] = token;
  oldest_ = (oldest_ + 1) % kSize;
}

}  // namespace millrace::engine
