#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/logit_rules.h"
#include "engine/request.h"

namespace millrace::engine {

struct TokenLogit {
  TokenId token = 0;
  float logit = 0;
};

// Chooses the next token from a row of logits. One thread; all scratch is allocated at construction.
//
// Order of the steps, as in vLLM's V1 sampler: logprobs are taken from the raw logits; then LogitRules
// (constraint, min_tokens, logit_bias, penalties), for the requests that ask for them; then temperature,
// min_p, top_k, top_p; then the draw.
//   min_p  keeps tokens whose probability is at least min_p times the largest.
//   top_k  keeps exactly the k most probable of those (all, if fewer).
//   top_p  keeps the shortest run of most probable tokens whose share of what is left reaches top_p.
// Wherever two tokens are equally probable the lower id counts as the more probable one, in greedy choice
// too.
//
// The draw is a Gumbel-max: the kept token with the largest logit / temperature + noise. The noise of a token
// is a pure function of (seed, position, token): a SplitMix64 stream per (seed, position), indexed by token.
// So a draw needs no state and no normaliser, filters do not shift the noise of the tokens that they keep,
// and a draft model that draws with the same noise tends to draw the same token.
class Sampler {
 public:
  explicit Sampler(int64_t vocab_size);

  // Scratch bytes of one sampler.
  static uint64_t ScratchBytes(int64_t vocab_size);

  // `logits` [vocab_size]; `sampling` has passed ValidateSampling; `position` is the chosen token's position
  // in the sequence; `context` is followable, and of ForcedTokens the first is taken. Overwrites `event`.
  // -inf marks a token that cannot be chosen. kCorrupt, naming token and value, for NaN and +inf, and when no
  // token can be chosen; kInvalidArgument when the constraint leaves none.
  Status Sample(std::span<const float> logits, const SamplingParams& sampling, int64_t position,
                TokenEvent& event, const DrawContext& context = {});

 private:
  struct Candidate {
    float logit = 0;
    TokenId token = 0;
    double weight = 0;  // probability relative to the most probable token's, at the request's temperature
  };
  static bool MoreProbable(const Candidate& a, const Candidate& b);

  // `best` is the largest of `logits`, here and below.
  Result<TokenId> Choose(std::span<const float> logits, const TokenLogit& best,
                         const SamplingParams& sampling, int64_t position, const DrawContext& context);
  TokenId ChooseFrom(std::span<const float> logits, const TokenLogit& best, const SamplingParams& sampling,
                     int64_t position);
  TokenId DrawToken(std::span<const float> logits, float max_logit, const SamplingParams& sampling,
                    int64_t position);
  void SelectTop(std::span<const float> logits, double min_logit, size_t count);
  void WeighCandidates(double max_logit, double temperature);
  void KeepTopP(double top_p);
  void FillLogprobs(std::span<const float> logits, float max_logit, int count, TokenEvent& event);

  size_t vocab_size_;
  LogitRules rules_;
  std::vector<Candidate> candidates_;  // capacity of the vocabulary: never grows
};

// The noise of `token` at `position` of a sequence with `seed`: standard Gumbel distribution, finite.
double GumbelNoise(uint64_t seed, int64_t position, TokenId token);

}  // namespace millrace::engine
