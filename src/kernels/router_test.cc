#include "kernels/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/testing_golden.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

constexpr size_t kExperts = 384;
constexpr size_t kChosen = 6;

TEST(Router, MatchesTheGoldens) {
  MILLRACE_SKIP_WITHOUT_GOLDEN("router");
  const UnitGolden golden("router");
  auto scores = golden.Get<float>("logits");
  const auto expected = golden.Get<float>("scores");
  const auto bias = golden.Get<float>("bias");
  const auto indices = golden.Get<int32_t>("indices");
  const auto weights = golden.Get<float>("weights");
  ASSERT_EQ(indices.size(), scores.size() / kExperts * kChosen);
  for (size_t t = 0; t < scores.size() / kExperts; ++t) {
    SCOPED_TRACE(t);
    float* row = scores.data() + t * kExperts;
    RouterScores(row, kExperts, 1.0f);
    for (size_t e = 0; e < kExperts; ++e) ASSERT_NEAR(row[e], expected[t * kExperts + e], 5e-7f) << e;
    int32_t chosen[kChosen];
    float chosen_weights[kChosen];
    ChooseExperts(row, bias.data(), kExperts, kChosen, 1.5f, chosen, chosen_weights);
    for (size_t i = 0; i < kChosen; ++i) {
      EXPECT_EQ(chosen[i], indices[t * kChosen + i]);
      EXPECT_NEAR(chosen_weights[i], weights[t * kChosen + i], 2e-7f);
    }
  }
}

TEST(RouterScores, AreStableAtBothEndsAndDivideByTheTemperature) {
  std::vector<float> z = {-200, -50, 0, 19.9f, 20, 20.1f, 1000};
  const std::vector<float> logits = z;
  RouterScores(z.data(), static_cast<int64_t>(z.size()), 1.0f);
  for (size_t i = 0; i < z.size(); ++i) {
    const double exact = std::sqrt(logits[i] > 500 ? logits[i] : std::log1p(std::exp(double{logits[i]})));
    EXPECT_NEAR(z[i], exact, 3e-7 * exact + 1e-22) << logits[i];
  }
  std::vector<float> warm = {3.0f};
  std::vector<float> halved = {1.5f};
  RouterScores(warm.data(), 1, 2.0f);
  RouterScores(halved.data(), 1, 1.0f);
  EXPECT_EQ(warm, halved);
}

TEST(ChooseExperts, OrdersByBiasedScoreThenIndexAndWeighsByPlainScore) {
  Random random(1);
  std::uniform_int_distribution<int> level(0, 3);
  for (int trial = 0; trial < 200; ++trial) {
    const size_t n = 1 + static_cast<size_t>(trial) % 40;
    std::vector<float> scores(n);
    std::vector<float> bias(n);
    for (size_t e = 0; e < n; ++e) {
      scores[e] = static_cast<float>(level(random)) * 0.25f;
      bias[e] = static_cast<float>(level(random)) * 0.5f;
    }
    std::vector<int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const auto i = static_cast<size_t>(a);
      const auto j = static_cast<size_t>(b);
      return scores[i] + bias[i] > scores[j] + bias[j];
    });
    const size_t k = std::min<size_t>(n, 1 + static_cast<size_t>(trial) % 8);
    std::vector<int32_t> experts(k);
    std::vector<float> weights(k);
    ChooseExperts(scores.data(), bias.data(), static_cast<int64_t>(n), static_cast<int64_t>(k), 1.5f,
                  experts.data(), weights.data());
    order.resize(k);
    ASSERT_EQ(experts, order);
    float sum = 0;
    for (const int32_t e : experts) sum += scores[static_cast<size_t>(e)];
    for (size_t i = 0; i < k; ++i)
      ASSERT_EQ(weights[i], 1.5f * scores[static_cast<size_t>(experts[i])] / (sum + 1e-20f));
  }
}

TEST(ChooseExperts, AllScoresZeroGivesZeroWeights) {
  const std::vector<float> scores(8, 0.0f);
  int32_t experts[3];
  float weights[3];
  ChooseExperts(scores.data(), scores.data(), 8, 3, 1.5f, experts, weights);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(experts[i], i);
    EXPECT_EQ(weights[i], 0);
  }
}

}  // namespace
}  // namespace millrace::kernels
