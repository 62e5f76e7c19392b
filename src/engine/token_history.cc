#include "engine/token_history.h"

namespace millrace::engine {

void TokenHistory::Start(std::span<const TokenId> prompt, const SamplingParams& sampling) {
  counting_ = UsesPenalties(sampling);
  if (counting_) {
    // Only the repetition penalty looks at the prompt.
    counts_.Start(sampling.repetition_penalty != 1 ? prompt : std::span<const TokenId>());
  }
  guarding_ = !sampling.ignore_eos;
  if (guarding_) guard_.Start();
}

void TokenHistory::OnToken(TokenId token) {
  if (counting_) counts_.OnGenerated(token);
  if (guarding_) guard_.OnToken(token);
}

}  // namespace millrace::engine
