#include "engine/logit_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace millrace::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

TokenCounts Counts(int64_t vocab_size, const std::vector<TokenId>& prompt,
                   const std::vector<TokenId>& generated) {
  TokenCounts counts(vocab_size);
  counts.Start(prompt);
  for (const TokenId token : generated) counts.OnGenerated(token);
  return counts;
}

std::vector<float> Apply(const std::vector<float>& logits, const SamplingParams& sampling,
                         const DrawContext& context = {}) {
  LogitRules rules(static_cast<int64_t>(logits.size()));
  const auto changed = rules.Apply(logits, sampling, context);
  EXPECT_TRUE(changed.ok()) << changed.error().message();
  return changed.ok() ? std::vector<float>(changed->begin(), changed->end()) : std::vector<float>();
}

TEST(LogitRules, APlainRequestNeedsNoPass) {
  SamplingParams sampling;
  sampling.temperature = 0.3f;
  sampling.top_p = 0.5f;
  sampling.min_tokens = 5;  // met: nothing is withheld
  EXPECT_FALSE(LogitRules::Change(sampling, {}));
  EXPECT_FALSE(LogitRules::Change(sampling, {.allowed = AnyTokenBut{}}));
  const std::vector<TokenId> ids = {1};
  EXPECT_TRUE(LogitRules::Change(sampling, {.withheld = ids}));
  EXPECT_TRUE(LogitRules::Change(sampling, {.allowed = AnyTokenBut{ids}}));
  EXPECT_TRUE(LogitRules::Change(sampling, {.allowed = OneOfTokens{ids}}));
  sampling.presence_penalty = -0.5f;
  EXPECT_TRUE(LogitRules::Change(sampling, {}));
  sampling = {};
  sampling.repetition_penalty = 1.5f;
  EXPECT_TRUE(LogitRules::Change(sampling, {}));
  sampling = {};
  sampling.logit_bias = {{0, 1}};
  EXPECT_TRUE(LogitRules::Change(sampling, {}));
}

TEST(LogitRules, PenaltiesHaveVllmsMeaning) {
  const std::vector<float> logits = {4, -4, 4, -4, 4, -kInf};
  // 0 and 1 in the prompt only, 2 and 3 generated, 4 never, 5 impossible.
  const TokenCounts counts = Counts(6, {0, 1, 0, 0}, {2, 3, 2, 2, 5});
  const DrawContext context{.counts = &counts};
  SamplingParams sampling;
  sampling.repetition_penalty = 2;
  EXPECT_THAT(Apply(logits, sampling, context), ElementsAre(2, -8, 2, -8, 4, -kInf));
  sampling.repetition_penalty = 1;
  sampling.presence_penalty = 0.5f;
  EXPECT_THAT(Apply(logits, sampling, context), ElementsAre(4, -4, 3.5f, -4.5f, 4, -kInf));
  sampling.presence_penalty = 0;
  sampling.frequency_penalty = 0.25f;
  EXPECT_THAT(Apply(logits, sampling, context), ElementsAre(4, -4, 3.25f, -4.25f, 4, -kInf));
  sampling.presence_penalty = -1;
  sampling.repetition_penalty = 4;
  EXPECT_THAT(Apply(logits, sampling, context), ElementsAre(1, -16, 1.25f, -15.25f, 4, -kInf));
}

TEST(LogitRules, BiasesComeBeforePenaltiesAndAddUp) {
  const TokenCounts counts = Counts(3, {0}, {});
  SamplingParams sampling;
  sampling.repetition_penalty = 2;
  sampling.logit_bias = {{0, -3}, {1, 2}, {1, 3}, {2, 100}};
  // 1 - 3 is negative by the time the penalty looks at its sign.
  EXPECT_THAT(Apply({1, 1, -kInf}, sampling, {.counts = &counts}), ElementsAre(-4, 6, -kInf));
}

TEST(LogitRules, FiniteLogitsStayFinite) {
  const TokenCounts counts = Counts(2, {0, 1}, {});
  SamplingParams sampling;
  sampling.repetition_penalty = 1e-30f;
  EXPECT_THAT(Apply({1e20f, 1}, sampling, {.counts = &counts}), ElementsAre(kMax, 1e30f));
  sampling.repetition_penalty = 1e30f;
  EXPECT_THAT(Apply({-1e20f, 1}, sampling, {.counts = &counts}), ElementsAre(-kMax, 1e-30f));
}

TEST(LogitRules, SetsAreTheSameAsIdsAndAsMask) {
  std::mt19937 rng(2);
  for (const size_t vocab_size : {1u, 63u, 64u, 65u, 500u}) {
    std::vector<float> logits(vocab_size);
    for (float& logit : logits) logit = std::normal_distribution<float>(0, 3)(rng);
    std::vector<uint64_t> words((vocab_size + 63) / 64);
    std::vector<TokenId> ids;
    for (size_t i = 0; i < 1 + vocab_size / 5; ++i) {
      ids.push_back(static_cast<TokenId>(rng() % vocab_size));
      words[static_cast<size_t>(ids.back()) / 64] |= uint64_t{1} << (ids.back() % 64);
    }
    std::vector<float> expected(vocab_size, -kInf);
    for (const TokenId id : ids) expected[static_cast<size_t>(id)] = logits[static_cast<size_t>(id)];
    EXPECT_EQ(Apply(logits, {}, {.allowed = OneOfTokens{ids}}), expected);
    EXPECT_EQ(Apply(logits, {}, {.allowed = OneOfMask{words}}), expected);
  }
}

TEST(LogitRules, WithheldTokensGoUnlessNothingElseIsLeft) {
  const std::vector<TokenId> one = {1};
  const std::vector<TokenId> both = {1, 2};
  EXPECT_THAT(Apply({5, 6, 7}, {}, {.withheld = one}), ElementsAre(5, -kInf, 7));
  EXPECT_THAT(Apply({5, 6, 7}, {}, {.withheld = one, .allowed = OneOfTokens{both}}),
              ElementsAre(-kInf, -kInf, 7));
  EXPECT_THAT(Apply({5, 6, 7}, {}, {.withheld = one, .allowed = OneOfTokens{one}}),
              ElementsAre(-kInf, 6, -kInf));
  EXPECT_THAT(Apply({5, 6, 7}, {}, {.allowed = AnyTokenBut{both}}), ElementsAre(5, -kInf, -kInf));
}

TEST(LogitRules, AConstraintThatLeavesNothingIsAnError) {
  LogitRules rules(3);
  const std::vector<TokenId> ids = {1};
  const auto changed =
      rules.Apply(std::vector<float>{5, -kInf, 7}, SamplingParams(), {.allowed = OneOfTokens{ids}});
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().message(),
            "the request's constraint cannot be followed: the model gives every token that it allows the "
            "logit -inf");
}

TEST(CheckFollowable, NamesWhatCannotBeFollowed) {
  const std::vector<TokenId> good = {0, 69};
  const std::vector<TokenId> large = {3, 70};
  const std::vector<TokenId> negative = {-1};
  const std::vector<uint64_t> words(2);
  for (const NextToken& next : {NextToken(AnyToken{}), NextToken(AnyTokenBut{}), NextToken(AnyTokenBut{good}),
                                NextToken(OneOfTokens{good}), NextToken(ForcedTokens{good}),
                                NextToken(OneOfMask{words}), NextToken(EndOfSequence{})}) {
    EXPECT_TRUE(CheckFollowable(next, 70).ok());
  }
  const auto message = [](const NextToken& next) {
    const Status status = CheckFollowable(next, 70);
    EXPECT_FALSE(status.ok());
    return status.ok() ? std::string() : status.error().message();
  };
  for (const NextToken& next :
       {NextToken(AnyTokenBut{large}), NextToken(OneOfTokens{large}), NextToken(ForcedTokens{large})}) {
    EXPECT_THAT(message(next), HasSubstr("it names token 70; ids of the vocabulary are 0 to 69"));
  }
  EXPECT_THAT(message(ForcedTokens{negative}), HasSubstr("it names token -1"));
  EXPECT_THAT(message(OneOfTokens{}), HasSubstr("it allows no token; to end the sequence it must say so"));
  EXPECT_THAT(message(ForcedTokens{}), HasSubstr("it allows no token"));
  EXPECT_THAT(message(OneOfMask{std::span(words).first(1)}),
              HasSubstr("its mask has 1 words of 64 tokens; a vocabulary of 70 tokens has 2"));
}

}  // namespace
}  // namespace millrace::engine
