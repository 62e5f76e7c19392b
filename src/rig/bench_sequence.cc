#include "rig/bench_sequence.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/units.h"

namespace millrace::rig {
namespace {

size_t PagesFor(int64_t n_tokens) {
  return static_cast<size_t>((n_tokens + model::kPageTokens - 1) / model::kPageTokens);
}

}  // namespace

BenchSequence::BenchSequence(model::Forward& forward, int64_t capacity, uint64_t seed)
    : forward_(forward),
      memory_(PagesFor(capacity) * RoundUp(forward.page_layout().page_bytes, 64)),
      state_(forward.plan()),
      random_(seed),
      tokens_(static_cast<size_t>(forward.options().max_batch_tokens)),
      logits_(static_cast<size_t>(forward.plan().config.vocab_size)) {
  const size_t stride = RoundUp(forward.page_layout().page_bytes, 64);
  for (size_t p = 0; p < PagesFor(capacity); ++p) state_.pages.push_back(memory_.data() + p * stride);
}

TokenId BenchSequence::RandomToken() {
  return static_cast<TokenId>(random_() % static_cast<uint64_t>(forward_.plan().config.vocab_size));
}

void BenchSequence::Prefill(int64_t n_tokens) {
  state_.Reset();
  const auto batch = static_cast<int64_t>(tokens_.size());
  for (int64_t at = 0; at < n_tokens; at += batch) {
    const int64_t n = std::min(batch, n_tokens - at);
    const std::span<TokenId> tokens = std::span(tokens_).first(static_cast<size_t>(n));
    for (TokenId& token : tokens) token = RandomToken();
    const model::BatchItem item{
        .state = &state_,
        .tokens = tokens,
        .logits = at + n == n_tokens ? model::LogitsWanted::kLast : model::LogitsWanted::kNone,
        .results_from = n_tokens - 1};
    forward_.Run(std::span(&item, 1), logits_);
  }
}

void BenchSequence::Decode() {
  tokens_[0] = RandomToken();
  const model::BatchItem item{.state = &state_, .tokens = std::span(tokens_).first(1)};
  forward_.Run(std::span(&item, 1), logits_);
}

void BenchSequence::ReadInTheMiddle(int64_t n_tokens, int64_t results_from) {
  const int64_t start = state_.length();
  const std::span<TokenId> tokens = std::span(tokens_).first(static_cast<size_t>(n_tokens));
  for (TokenId& token : tokens) token = RandomToken();
  const model::BatchItem item{
      .state = &state_, .tokens = tokens, .logits = model::LogitsWanted::kNone, .results_from = results_from};
  forward_.Run(std::span(&item, 1), logits_);
  state_.AdvanceTo(start, 0);
}

int64_t BenchSequence::DepthUnit(const model::LayerPlan& plan) {
  // A position's place in the window rings must be that of the position it repeats.
  return std::lcm(model::kPageTokens, plan.config.sliding_window);
}

void BenchSequence::RepeatTo(int64_t depth) {
  const int64_t unit = DepthUnit(forward_.plan());
  MILLRACE_CHECK(state_.length() % unit == 0 && depth % unit == 0 && state_.length() > 0,
                 "a sequence is repeated in whole units");
  const size_t have = PagesFor(state_.length());
  for (size_t p = have; p < PagesFor(depth); ++p)
    std::memcpy(state_.pages[p], state_.pages[p % have], forward_.page_layout().page_bytes);
  state_.AdvanceTo(depth, 0);
}

}  // namespace millrace::rig
