#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include "kernels/matmul_ref.h"
#include "kernels/testing_targets.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

constexpr float kEps = 1e-20f;  // the model's own

TEST(RmsNorm, FollowsTheFormulaWithThePromisedSumOnEveryTarget) {
  Random random(1);
  for (size_t n = 16; n <= 96; n += 16) {
    const std::vector<float> x = RandomFloats(random, n);
    const std::vector<float> gain = RandomFloats(random, n);
    const float scale = 1.0f / std::sqrt(ref::Dot(x.data(), x.data(), n) / static_cast<float>(n) + kEps);
    std::vector<float> expected(n);
    for (size_t i = 0; i < n; ++i) expected[i] = gain[i] * (x[i] * scale);
    ForEachTarget([&] {
      std::vector<float> out(n);
      RmsNorm(x.data(), gain.data(), static_cast<int64_t>(n), kEps, out.data());
      ExpectSameBits(out, expected);
      std::vector<float> in_place = x;
      RmsNorm(in_place.data(), gain.data(), static_cast<int64_t>(n), kEps, in_place.data());
      ExpectSameBits(in_place, expected);
    });
  }
}

TEST(RmsNorm, MatchesDouble) {
  Random random(2);
  const std::vector<float> x = RandomFloats(random, 5120);
  double squares = 0;
  for (const float v : x) squares += double{v} * v;
  EXPECT_NEAR(ReciprocalRms(x.data(), 5120, kEps) * std::sqrt(squares / 5120 + 1e-20), 1, 3e-7);
}

TEST(RmsNorm, ZerosStayZero) {
  const std::vector<float> zeros(32, 0.0f);
  std::vector<float> out(32, 1.0f);
  RmsNorm(zeros.data(), zeros.data(), 32, kEps, out.data());
  EXPECT_EQ(out, zeros);
}

}  // namespace
}  // namespace millrace::kernels
