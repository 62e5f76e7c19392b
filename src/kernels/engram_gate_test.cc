#include "kernels/engram_gate.h"

#include <gtest/gtest.h>

#include "kernels/testing_targets.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

double Exact(const std::vector<float>& x, const std::vector<float>& gain, const std::vector<float>& key) {
  double dot = 0;
  double xx = 0;
  double kk = 0;
  const auto n = static_cast<double>(x.size());
  for (size_t d = 0; d < x.size(); ++d) {
    dot += double{x[d]} * gain[d] * key[d];
    xx += double{x[d]} * x[d];
    kk += double{key[d]} * key[d];
  }
  dot = dot / std::sqrt(xx / n + 1e-20) / std::sqrt(kk / n + 1e-20) / std::sqrt(n);
  const double root = std::copysign(std::sqrt(std::max(std::abs(dot), 1e-6)), dot);
  return 1 / (1 + std::exp(-root));
}

TEST(EngramGate, MatchesDoubleAndIsTheSameOnEveryTarget) {
  Random random(1);
  for (size_t n = 16; n <= 5120; n = n * 2 + 16) {
    std::vector<float> x = RandomFloats(random, n);
    const std::vector<float> gain = RandomFloats(random, n);
    const std::vector<float> key = RandomFloats(random, n);
    std::vector<float> scratch(n);
    const float first =
        EngramGate(x.data(), gain.data(), key.data(), static_cast<int64_t>(n), 1e-20f, scratch.data());
    EXPECT_NEAR(first, Exact(x, gain, key), 2e-6) << n;
    ForEachTarget([&] {
      EXPECT_EQ(
          EngramGate(x.data(), gain.data(), key.data(), static_cast<int64_t>(n), 1e-20f, scratch.data()),
          first);
    });
  }
}

TEST(EngramGate, TinyProductsKeepTheirSign) {
  const std::vector<float> x(16, 1.0f);
  const std::vector<float> gain(16, 1e-12f);
  std::vector<float> scratch(16);
  const std::vector<float> against(16, -1.0f);
  const double root = 1e-3;  // sqrt of the floor
  EXPECT_NEAR(EngramGate(x.data(), gain.data(), x.data(), 16, 1e-20f, scratch.data()),
              1 / (1 + std::exp(-root)), 1e-7);
  EXPECT_NEAR(EngramGate(x.data(), gain.data(), against.data(), 16, 1e-20f, scratch.data()),
              1 / (1 + std::exp(root)), 1e-7);
}

}  // namespace
}  // namespace millrace::kernels
