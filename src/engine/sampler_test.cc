#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

namespace millrace::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TokenEvent Sample(const std::vector<float>& logits, const SamplingParams& sampling, int64_t position = 0) {
  Sampler sampler(static_cast<int64_t>(logits.size()));
  TokenEvent event;
  const Status status = sampler.Sample(logits, sampling, position, event);
  EXPECT_TRUE(status.ok());
  return event;
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  const double max = *std::ranges::max_element(logits);
  std::vector<double> p;
  for (float logit : logits) p.push_back(std::exp((logit - max) / temperature));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

// Pearson's statistic of `counts` against `expected` probabilities; cells of probability 0 must be empty.
double ChiSquare(const std::vector<int>& counts, const std::vector<double>& expected) {
  const double n = std::accumulate(counts.begin(), counts.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " is excluded";
      continue;
    }
    const double want = n * expected[i];
    sum += (counts[i] - want) * (counts[i] - want) / want;
  }
  return sum;
}

// The value that a chi-square variable exceeds with probability 1e-3 (Wilson-Hilferty).
double ChiSquareLimit(double degrees) {
  const double z = 3.0902;
  const double a = 2 / (9 * degrees);
  return degrees * std::pow(1 - a + z * std::sqrt(a), 3);
}

// What the header promises, the long way: the kept tokens in descending probability.
std::vector<TokenId> KeptTokens(const std::vector<float>& logits, const SamplingParams& s) {
  std::vector<TokenId> kept;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != -kInf) kept.push_back(static_cast<TokenId>(i));
  }
  std::ranges::stable_sort(kept, [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  const auto weight = [&](TokenId t) {
    return std::exp((logits[t] - double{logits[kept[0]]}) / s.temperature);
  };
  while (weight(kept.back()) < s.min_p) kept.pop_back();
  if (s.top_k > 0 && kept.size() > static_cast<size_t>(s.top_k)) kept.resize(s.top_k);
  if (s.top_p < 1) {
    double total = 0;
    for (TokenId t : kept) total += weight(t);
    size_t n = 0;
    for (double sum = 0; n < kept.size() && sum < s.top_p * total; ++n) sum += weight(kept[n]);
    kept.resize(n);
  }
  return kept;
}

TokenId ReferenceDraw(const std::vector<float>& logits, const SamplingParams& s, int64_t position) {
  TokenId best = -1;
  double best_score = 0;
  const double max = *std::ranges::max_element(logits);
  for (TokenId t : KeptTokens(logits, s)) {
    const double score = (logits[t] - max) / s.temperature + GumbelNoise(s.seed, position, t);
    if (best < 0 || score > best_score) {
      best = t;
      best_score = score;
    }
  }
  return best;
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheLargest) {
  SamplingParams greedy;
  greedy.temperature = 0;
  EXPECT_EQ(Sample({1, 3, 2, 3, 3}, greedy).token, 1);
  EXPECT_EQ(Sample({-kInf, -kInf, -5, -5}, greedy).token, 2);
  EXPECT_EQ(Sample({7}, greedy).token, 0);
  EXPECT_EQ(Sample({-0.0f, 0.0f}, greedy).token, 0);
}

TEST(Sampler, DrawsFollowTheSoftmaxOverPositionsAndOverSeeds) {
  std::vector<float> logits;
  for (int i = 0; i < 20; ++i) logits.push_back(std::sin(3.0f * static_cast<float>(i)) * 2);
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    SamplingParams s;
    s.temperature = temperature;
    Sampler sampler(20);
    TokenEvent event;
    std::vector<int> by_position(20), by_seed(20);
    for (int64_t i = 0; i < 200000; ++i) {
      s.seed = 7;
      ASSERT_TRUE(sampler.Sample(logits, s, i, event).ok());
      ++by_position[event.token];
      s.seed = static_cast<uint64_t>(i);
      ASSERT_TRUE(sampler.Sample(logits, s, 11, event).ok());
      ++by_seed[event.token];
    }
    const std::vector<double> p = Softmax(logits, temperature);
    EXPECT_LT(ChiSquare(by_position, p), ChiSquareLimit(19)) << temperature;
    EXPECT_LT(ChiSquare(by_seed, p), ChiSquareLimit(19)) << temperature;
  }
}

TEST(Sampler, NeighbouringPositionsAndSeedsAreIndependent) {
  const std::vector<float> logits(5, 0.0f);
  const std::vector<double> uniform(25, 1.0 / 25);
  SamplingParams s;
  Sampler sampler(5);
  TokenEvent event;
  std::vector<int> positions(25), seeds(25);
  const auto draw = [&](uint64_t seed, int64_t position) {
    s.seed = seed;
    EXPECT_TRUE(sampler.Sample(logits, s, position, event).ok());
    return event.token;
  };
  for (int64_t i = 0; i < 100000; ++i) {
    ++positions[5 * draw(1, 2 * i) + draw(1, 2 * i + 1)];
    ++seeds[5 * draw(2 * i, 3) + draw(2 * i + 1, 3)];
  }
  EXPECT_LT(ChiSquare(positions, uniform), ChiSquareLimit(24));
  EXPECT_LT(ChiSquare(seeds, uniform), ChiSquareLimit(24));
}

TEST(Sampler, FilteredDrawsFollowTheRenormalisedSoftmax) {
  // Probabilities 0.4, 0.3, 0.2, 0.05, 0.05 in shuffled order.
  const std::vector<double> p = {0.05, 0.3, 0.2, 0.4, 0.05};
  std::vector<float> logits;
  for (double x : p) logits.push_back(static_cast<float>(std::log(x)));
  struct Case {
    int top_k;
    float top_p;
    float min_p;
    std::vector<double> expected;
  };
  const Case cases[] = {
      {2, 1, 0, {0, 3.0 / 7, 0, 4.0 / 7, 0}},
      {0, 0.69f, 0, {0, 3.0 / 7, 0, 4.0 / 7, 0}},
      {0, 0.71f, 0, {0, 3.0 / 9, 2.0 / 9, 4.0 / 9, 0}},
      {0, 1, 0.45f, {0, 3.0 / 9, 2.0 / 9, 4.0 / 9, 0}},
      // 0.4 / 0.7 of what top_k leaves is already 0.5 of it: top_p counts after top_k.
      {2, 0.5f, 0, {0, 0, 0, 1, 0}},
      // Of what min_p leaves, 0.4 / 0.9 is less than 0.7 and 0.7 / 0.9 is not.
      {0, 0.7f, 0.45f, {0, 3.0 / 7, 0, 4.0 / 7, 0}},
      // The tie at 0.05 goes to the lower id.
      {4, 1, 0, {0.05 / 0.95, 0.3 / 0.95, 0.2 / 0.95, 0.4 / 0.95, 0}},
  };
  for (const Case& c : cases) {
    SamplingParams s;
    s.top_k = c.top_k;
    s.top_p = c.top_p;
    s.min_p = c.min_p;
    Sampler sampler(5);
    TokenEvent event;
    std::vector<int> counts(5);
    for (int64_t i = 0; i < 50000; ++i) {
      ASSERT_TRUE(sampler.Sample(logits, s, i, event).ok());
      ++counts[event.token];
    }
    const auto cells = std::ranges::count_if(c.expected, [](double x) { return x > 0; });
    EXPECT_LT(ChiSquare(counts, c.expected), ChiSquareLimit(std::max<double>(cells - 1.0, 1)))
        << c.top_k << " " << c.top_p << " " << c.min_p;
  }
}

// Every mix of filters, ties and masked tokens: the token is exactly the one that the plain definition gives.
TEST(Sampler, EqualsThePlainDefinition) {
  std::mt19937 rng(5);
  for (int round = 0; round < 4000; ++round) {
    const size_t n = 1 + rng() % (round % 20 == 0 ? 5000 : 300);
    std::vector<float> logits;
    const bool ties = rng() % 2;
    for (size_t i = 0; i < n; ++i) {
      const float x = std::normal_distribution<float>(0, 3)(rng);
      logits.push_back(rng() % 10 == 0 ? -kInf : ties ? std::round(x) : x);
    }
    logits[rng() % n] = 1;
    SamplingParams s;
    s.seed = rng();
    s.temperature = std::exp(std::uniform_real_distribution<float>(-3, 2)(rng));
    if (rng() % 2) s.top_k = static_cast<int>(1 + rng() % (2 * n));
    if (rng() % 2) s.top_p = std::uniform_real_distribution<float>(0.01f, 1)(rng);
    if (rng() % 2) s.min_p = std::uniform_real_distribution<float>(0, 0.5f)(rng);
    const auto position = static_cast<int64_t>(rng() % 1000000);
    ASSERT_EQ(Sample(logits, s, position).token, ReferenceDraw(logits, s, position))
        << "n " << n << " T " << s.temperature << " k " << s.top_k << " p " << s.top_p << " m " << s.min_p;
  }
}

TEST(Sampler, ADrawDependsOnNothingButItsArguments) {
  std::vector<float> logits;
  for (int i = 0; i < 1000; ++i) logits.push_back(std::cos(static_cast<float>(i)));
  SamplingParams s;
  s.seed = 42;
  s.top_p = 0.9f;
  std::vector<TokenId> alone;
  for (int64_t pos = 0; pos < 50; ++pos) alone.push_back(Sample(logits, s, pos).token);
  // One sampler, other requests between, positions backwards.
  Sampler sampler(1000);
  TokenEvent event;
  SamplingParams other;
  other.top_k = 3;
  other.logprobs = 5;
  for (int64_t pos = 49; pos >= 0; --pos) {
    ASSERT_TRUE(sampler.Sample(std::vector<float>(1000, 1.0f), other, pos, event).ok());
    ASSERT_TRUE(sampler.Sample(logits, s, pos, event).ok());
    EXPECT_EQ(event.token, alone[static_cast<size_t>(pos)]);
    EXPECT_FALSE(event.chosen.has_value());
    EXPECT_TRUE(event.top.empty());
  }
  EXPECT_GT(std::set<TokenId>(alone.begin(), alone.end()).size(), 30u);
}

TEST(Sampler, ExtremesPickTheObviousToken) {
  const std::vector<float> logits = {1, 1.001f, 0.5f, -3};
  for (int64_t pos = 0; pos < 200; ++pos) {
    SamplingParams s;
    s.temperature = 1e-6f;
    EXPECT_EQ(Sample(logits, s, pos).token, 1);
    s.temperature = std::numeric_limits<float>::denorm_min();
    EXPECT_EQ(Sample(logits, s, pos).token, 1);
    s = {};
    s.top_p = 1e-30f;
    EXPECT_EQ(Sample(logits, s, pos).token, 1);
    s = {};
    s.top_p = std::numeric_limits<float>::denorm_min();
    EXPECT_EQ(Sample(logits, s, pos).token, 1);
    s = {};
    s.top_k = 1;
    EXPECT_EQ(Sample(logits, s, pos).token, 1);
    s = {};
    s.min_p = 1;
    EXPECT_EQ(Sample(logits, s, pos).token, 1);
    s = {};
    s.temperature = std::numeric_limits<float>::max();
    s.top_p = 0.99f;
    EXPECT_LT(Sample(logits, s, pos).token, 4);
    // All but one masked, at every temperature.
    for (float temperature : {0.0f, 1e-6f, 1.0f, 1e30f}) {
      s = {};
      s.temperature = temperature;
      s.top_p = pos % 2 ? 0.5f : 1.0f;
      EXPECT_EQ(Sample({-kInf, -kInf, -1e30f, -kInf}, s, pos).token, 2);
    }
    s = {};
    EXPECT_EQ(Sample({-3e38f, 3e38f}, s, pos).token, 1);
  }
}

TEST(Sampler, UnusableLogitsAreAnErrorThatNamesThem) {
  for (float temperature : {0.0f, 1.0f}) {
    SamplingParams s;
    s.temperature = temperature;
    s.top_p = 0.9f;
    s.logprobs = 2;
    Sampler sampler(3);
    TokenEvent event;
    const Status nan = sampler.Sample(std::vector<float>{1, 2, kNan}, s, 0, event);
    ASSERT_FALSE(nan.ok());
    EXPECT_EQ(nan.error().code(), ErrorCode::kCorrupt);
    EXPECT_THAT(nan.error().message(), HasSubstr("the logit of token 2 is nan"));
    const Status inf = sampler.Sample(std::vector<float>{1, kInf, 0}, s, 0, event);
    ASSERT_FALSE(inf.ok());
    EXPECT_THAT(inf.error().message(), HasSubstr("the logit of token 1 is inf"));
    const Status none = sampler.Sample(std::vector<float>(3, -kInf), s, 0, event);
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().message(), "no token can be chosen: every logit is -inf");
  }
}

TEST(Sampler, LogprobsAreOfTheRawDistribution) {
  const std::vector<float> logits = {2, -kInf, 1, 2, -1};
  const double log_total = std::log(2 * std::exp(2) + std::exp(1) + std::exp(-1));
  SamplingParams s;
  s.temperature = 0.1f;
  s.top_k = 1;
  s.logprobs = 3;
  const TokenEvent event = Sample(logits, s);
  EXPECT_EQ(event.token, 0);
  ASSERT_TRUE(event.chosen.has_value());
  EXPECT_EQ(event.chosen->token, 0);
  EXPECT_FLOAT_EQ(event.chosen->logprob, static_cast<float>(2 - log_total));
  ASSERT_EQ(event.top.size(), 3u);
  EXPECT_EQ(event.top[0].token, 0);  // the tie: lower id first
  EXPECT_EQ(event.top[1].token, 3);
  EXPECT_EQ(event.top[2].token, 2);
  EXPECT_FLOAT_EQ(event.top[1].logprob, static_cast<float>(2 - log_total));
  EXPECT_FLOAT_EQ(event.top[2].logprob, static_cast<float>(1 - log_total));

  s.logprobs = 0;
  EXPECT_TRUE(Sample(logits, s).chosen.has_value());
  EXPECT_TRUE(Sample(logits, s).top.empty());
  s.logprobs = 20;  // more than there are
  EXPECT_EQ(Sample(logits, s).top.size(), 4u);
}

// The chosen token is that of the changed row; its logprob is that of the row as the model gave it.
TEST(Sampler, RulesChangeTheChoiceAndNotTheLogprobs) {
  const std::vector<float> logits = {2, 1, 0};
  const double log_total = std::log(std::exp(2) + std::exp(1) + 1);
  SamplingParams s;
  s.temperature = 0;
  s.logit_bias = {{2, 5}};
  s.logprobs = 1;
  TokenCounts counts(3);
  counts.OnGenerated(2);
  Sampler sampler(3);
  TokenEvent event;
  const std::vector<TokenId> two = {2};
  const auto sample = [&](const DrawContext& context) {
    EXPECT_TRUE(sampler.Sample(logits, s, 0, event, context).ok());
    EXPECT_EQ(event.chosen->token, event.token);
    EXPECT_FLOAT_EQ(event.chosen->logprob, static_cast<float>(logits[event.token] - log_total));
    EXPECT_EQ(event.top.size(), 1u);
    EXPECT_EQ(event.top[0].token, 0);
    return event.token;
  };
  EXPECT_EQ(sample({}), 2);
  EXPECT_EQ(sample({.withheld = two}), 0);
  s.repetition_penalty = 4;  // (0 + 5) / 4 is less than 2
  EXPECT_EQ(sample({.counts = &counts}), 0);
  EXPECT_EQ(sample({.counts = &counts, .allowed = ForcedTokens{two}}), 2);
}

// What a rule leaves is drawn as if the rest had never been there, whatever the filters.
TEST(Sampler, DrawsUnderRulesEqualDrawsFromTheChangedRow) {
  std::mt19937 rng(8);
  for (int round = 0; round < 500; ++round) {
    const auto n = static_cast<int64_t>(2 + rng() % 200);
    std::vector<float> logits(static_cast<size_t>(n));
    for (float& logit : logits) logit = std::normal_distribution<float>(0, 3)(rng);
    SamplingParams s;
    s.seed = rng();
    if (rng() % 2) s.top_k = static_cast<int>(1 + rng() % 20);
    if (rng() % 2) s.top_p = 0.8f;
    if (rng() % 2) s.min_p = 0.05f;
    s.presence_penalty = 1;
    s.frequency_penalty = 0.5f;
    s.repetition_penalty = 1.3f;
    TokenCounts counts(n);
    std::vector<TokenId> allowed;
    for (int i = 0; i < 10; ++i) {
      counts.OnGenerated(static_cast<TokenId>(rng() % static_cast<uint64_t>(n)));
      allowed.push_back(static_cast<TokenId>(rng() % static_cast<uint64_t>(n)));
    }
    const DrawContext context{.counts = &counts, .allowed = OneOfTokens{allowed}};
    LogitRules rules(n);
    const auto changed = rules.Apply(logits, s, context);
    ASSERT_TRUE(changed.ok());
    Sampler sampler(n);
    TokenEvent event;
    ASSERT_TRUE(sampler.Sample(logits, s, round, event, context).ok());
    EXPECT_EQ(event.token, ReferenceDraw({changed->begin(), changed->end()}, s, round));
  }
}

TEST(Sampler, NoiseIsStandardGumbel) {
  double sum = 0;
  double squares = 0;
  const int n = 1000000;
  for (int i = 0; i < n; ++i) {
    const double g = GumbelNoise(3, i % 1000, i / 1000);
    ASSERT_TRUE(std::isfinite(g));
    sum += g;
    squares += g * g;
  }
  const double mean = sum / n;
  const double variance = squares / n - mean * mean;
  EXPECT_NEAR(mean, 0.5772157, 4 * 1.2825 / std::sqrt(n));
  EXPECT_NEAR(variance, 1.6449341, 0.015);
}

}  // namespace
}  // namespace millrace::engine
