#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <variant>

#include "base/check.h"

namespace millrace::engine {
namespace {

constexpr double kLn2 = 0.693147180559945309417;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
// exp(-40) is below the rounding of a sum that holds a 1: such tokens cannot change a total.
constexpr double kNegligible = -40;

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection that mixes every bit into every
// other.
uint64_t Mix(uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

constexpr uint64_t kStride = 0x9E3779B97F4A7C15u;  // SplitMix64's increment: odd, 2^64 / golden ratio

uint64_t StreamOf(uint64_t seed, int64_t position) {
  return Mix(Mix(seed + kStride) + static_cast<uint64_t>(position) * kStride);
}

// 64 noise bits of one token of a stream.
uint64_t NoiseBits(uint64_t stream, TokenId token) {
  return Mix(stream + (static_cast<uint64_t>(token) + 1) * kStride);
}

// With v uniform over the middles of 2^52 parts of (0, 1): -log(-log(1 - v)). Small v gives the large values
// that win draws, and there v has its full precision.
double Gumbel(uint64_t bits) {
  const double v = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  return -std::log(-std::log1p(-v));
}

// At least Gumbel(bits), without logarithms: -log(1 - v) >= v, so the noise is at most -log(v), and v is at
// least 2^-(leading zeros + 1). The slack covers rounding.
double GumbelBound(uint64_t bits) {
  return kLn2 * static_cast<double>(std::countl_zero(bits | 1 << 11) + 1) + 1e-9;
}

Error UnusableLogit(size_t token, float value) {
  return Error(ErrorCode::kCorrupt,
               fmt::format("the logit of token {} is {}, expected a finite number or -inf; the weights or a "
                           "kernel are broken: check the checkpoint's files with 'millrace inspect'",
                           token, value));
}

// The largest logit, lowest id on ties.
Result<TokenLogit> FindBest(std::span<const float> logits) {
  TokenLogit best{.logit = -kInfinity};
  bool any = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    if (!(logit < kInfinity)) return UnusableLogit(i, logit);  // NaN too
    if (logit > best.logit) {
      best = {static_cast<TokenId>(i), logit};
      any = true;
    }
  }
  if (!any) return Error(ErrorCode::kCorrupt, "no token can be chosen: every logit is -inf");
  return best;
}

// Runs the Gumbel-max draw over tokens offered in any order.
class Draw {
 public:
  Draw(const SamplingParams& sampling, int64_t position, float max_logit)
      : stream_(StreamOf(sampling.seed, position)),
        temperature_(sampling.temperature),
        max_logit_(max_logit) {}

  void Offer(TokenId token, float logit) {
    const double scaled = (static_cast<double>(logit) - max_logit_) / temperature_;
    const uint64_t bits = NoiseBits(stream_, token);
    if (scaled + GumbelBound(bits) < best_score_) return;
    const double score = scaled + Gumbel(bits);
    if (score > best_score_ || (score == best_score_ && token < best_)) {
      best_score_ = score;
      best_ = token;
    }
  }

  TokenId winner() const { return best_; }

 private:
  uint64_t stream_;
  double temperature_;
  double max_logit_;
  double best_score_ = -std::numeric_limits<double>::infinity();
  TokenId best_ = 0;
};

}  // namespace

double GumbelNoise(uint64_t seed, int64_t position, TokenId token) {
  return Gumbel(NoiseBits(StreamOf(seed, position), token));
}

Sampler::Sampler(int64_t vocab_size) : vocab_size_(static_cast<size_t>(vocab_size)), rules_(vocab_size) {
  MILLRACE_CHECK(vocab_size > 0, "a vocabulary without tokens");
  candidates_.reserve(vocab_size_);
}

uint64_t Sampler::ScratchBytes(int64_t vocab_size) {
  return static_cast<uint64_t>(vocab_size) * sizeof(Candidate) + LogitRules::ScratchBytes(vocab_size);
}

bool Sampler::MoreProbable(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// Fills candidates_ with the `count` most probable tokens of at least `min_logit`, in no order. Streams: the
// buffer holds up to twice `count`; when it is full the worse half goes, and its best is a bound for the
// rest.
void Sampler::SelectTop(std::span<const float> logits, double min_logit, size_t count) {
  const size_t buffer = std::min(logits.size(), 2 * std::min(count, logits.size()));
  double bound = min_logit;
  candidates_.clear();
  const auto shrink = [&] {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count) - 1,
                     candidates_.end(), MoreProbable);
    candidates_.resize(count);
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] >= bound) || logits[i] == -kInfinity) continue;
    candidates_.push_back({logits[i], static_cast<TokenId>(i), 0});
    if (candidates_.size() == buffer && buffer > count) {
      shrink();
      bound = candidates_.back().logit;
    }
  }
  if (candidates_.size() > count) shrink();
}

void Sampler::WeighCandidates(double max_logit, double temperature) {
  for (Candidate& c : candidates_) {
    const double scaled = (static_cast<double>(c.logit) - max_logit) / temperature;
    c.weight = scaled < kNegligible ? 0 : std::exp(scaled);
  }
}

void Sampler::KeepTopP(double top_p) {
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  const double wanted = top_p * total;
  // Tokens this light weigh less together than what top_p leaves out, so none of them is kept. Half of the
  // exact limit, to stay clear of rounding.
  const double limit = (1 - top_p) * total / static_cast<double>(candidates_.size()) / 2;
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < limit; });

  // The kept run ends in (begin, end]; everything before `begin` is kept and weighs `sum`. Halving instead of
  // sorting: a flat distribution keeps tens of thousands.
  const auto at = [&](size_t n) { return candidates_.begin() + static_cast<ptrdiff_t>(n); };
  size_t begin = 0;
  size_t end = candidates_.size();
  double sum = 0;
  while (end - begin > 32) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(at(begin), at(middle), at(end), MoreProbable);
    double half = 0;
    for (size_t n = begin; n < middle; ++n) half += candidates_[n].weight;
    if (sum + half >= wanted) {
      end = middle;
    } else {
      sum += half;
      begin = middle;
    }
  }
  std::sort(at(begin), at(end), MoreProbable);
  while (begin < end && sum < wanted) sum += candidates_[begin++].weight;
  candidates_.resize(begin);
}

void Sampler::FillLogprobs(std::span<const float> logits, float max_logit, int count, TokenEvent& event) {
  double total = 0;
  for (float logit : logits) {
    const double scaled = static_cast<double>(logit) - max_logit;
    if (scaled >= kNegligible) total += std::exp(scaled);
  }
  const double log_total = std::log(total) + max_logit;
  const auto logprob_of = [&](TokenId token) {
    return TokenLogprob{token, static_cast<float>(logits[static_cast<size_t>(token)] - log_total)};
  };
  event.chosen = logprob_of(event.token);
  if (count == 0) return;
  SelectTop(logits, -kInfinity, static_cast<size_t>(count));
  std::sort(candidates_.begin(), candidates_.end(), MoreProbable);
  for (const Candidate& c : candidates_) event.top.push_back(logprob_of(c.token));
}

TokenId Sampler::ChooseFrom(std::span<const float> logits, const TokenLogit& best,
                            const SamplingParams& sampling, int64_t position) {
  return sampling.temperature == 0 ? best.token : DrawToken(logits, best.logit, sampling, position);
}

TokenId Sampler::DrawToken(std::span<const float> logits, float max_logit, const SamplingParams& sampling,
                           int64_t position) {
  const double temperature = sampling.temperature;
  // min_p as a bound on the logit: log(p / p_max) = (logit - max) / temperature.
  const double min_logit = sampling.min_p > 0
                               ? max_logit + temperature * std::log(static_cast<double>(sampling.min_p))
                               : -std::numeric_limits<double>::infinity();
  Draw draw(sampling, position, max_logit);
  if (sampling.top_k == 0 && sampling.top_p == 1) {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] >= min_logit && logits[i] != -kInfinity) draw.Offer(static_cast<TokenId>(i), logits[i]);
    }
    return draw.winner();
  }
  SelectTop(logits, min_logit, sampling.top_k > 0 ? static_cast<size_t>(sampling.top_k) : logits.size());
  if (sampling.top_p < 1) {
    WeighCandidates(max_logit, temperature);
    KeepTopP(sampling.top_p);
  }
  for (const Candidate& c : candidates_) draw.Offer(c.token, c.logit);
  return draw.winner();
}

Result<TokenId> Sampler::Choose(std::span<const float> logits, const TokenLogit& best,
                                const SamplingParams& sampling, int64_t position,
                                const DrawContext& context) {
  if (const auto* const forced = std::get_if<ForcedTokens>(&context.allowed)) return forced->ids.front();
  if (!LogitRules::Change(sampling, context)) return ChooseFrom(logits, best, sampling, position);
  MILLRACE_ASSIGN_OR_RETURN(const std::span<const float> changed, rules_.Apply(logits, sampling, context));
  MILLRACE_ASSIGN_OR_RETURN(const TokenLogit best_changed, FindBest(changed));
  return ChooseFrom(changed, best_changed, sampling, position);
}

Status Sampler::Sample(std::span<const float> logits, const SamplingParams& sampling, int64_t position,
                       TokenEvent& event, const DrawContext& context) {
  MILLRACE_CHECK(logits.size() == vocab_size_, "a row of logits is not as long as the vocabulary");
  event.chosen.reset();
  event.top.clear();
  MILLRACE_ASSIGN_OR_RETURN(const TokenLogit best, FindBest(logits));
  MILLRACE_ASSIGN_OR_RETURN(event.token, Choose(logits, best, sampling, position, context));
  if (sampling.logprobs) FillLogprobs(logits, best.logit, *sampling.logprobs, event);
  return {};
}

}  // namespace millrace::engine
