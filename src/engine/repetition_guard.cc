#include "engine/repetition_guard.h"

#include "base/check.h"

namespace millrace::engine {
namespace {

constexpr auto kWindow = static_cast<uint32_t>(kMaxPhraseTokens);

// A hash of a token, below kWindow: the high bits of a product with 2^32 / golden ratio.
size_t HashOf(TokenId token) {
  static_assert(kWindow == 1 << 8);
  return static_cast<uint32_t>(token) * 0x9E3779B9u >> 24;
}

}  // namespace

RepetitionGuard::RepetitionGuard(int64_t limit_tokens) : limit_tokens_(static_cast<uint32_t>(limit_tokens)) {
  MILLRACE_CHECK(
      limit_tokens == 0 || (limit_tokens >= kMinRepetitionLimitTokens && limit_tokens <= UINT32_MAX),
      "a limit of repetition out of range");
  Start();
}

void RepetitionGuard::Start() {
  place_ = 0;
  repeats_ = false;
  recent_.fill({});
  latest_.fill(0);
  runs_.fill({});
}

void RepetitionGuard::OnToken(TokenId token) {
  if (limit_tokens_ == 0) return;
  ++place_;
  repeats_ = false;
  Place& latest = latest_[HashOf(token)];
  for (Place at = latest; at != 0 && place_ - at <= kWindow; at = recent_[at % kWindow].earlier) {
    if (recent_[at % kWindow].token != token) continue;
    const uint32_t period = place_ - at;
    Run& run = runs_[period];
    run.tokens = run.last + 1 == place_ ? run.tokens + 1 : 1;
    run.last = place_;
    // The first period of the repetition is not part of the run.
    repeats_ = repeats_ || run.tokens + period >= limit_tokens_;
  }
  recent_[place_ % kWindow] = {token, latest};
  latest = place_;
}

}  // namespace millrace::engine
