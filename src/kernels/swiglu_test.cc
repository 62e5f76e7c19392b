#include "kernels/swiglu.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

double Exact(double gate, double up, double limit, double weight) {
  if (limit > 0) {
    gate = std::min(gate, limit);
    up = std::clamp(up, -limit, limit);
  }
  return weight * (gate / (1 + std::exp(-gate)) * up);
}

TEST(SwiGlu, MatchesDoubleWithAndWithoutLimit) {
  Random random(1);
  for (const float limit : {0.0f, 1.5f, 10.0f}) {
    for (size_t n = 0; n <= 40; ++n) {
      std::vector<float> gate = RandomFloats(random, n);
      std::vector<float> up = RandomFloats(random, n);
      if (n > 3) gate[1] = -200, gate[2] = 200, up[2] = -300, up[3] = 0;
      std::vector<float> out(n);
      SwiGlu(gate.data(), up.data(), static_cast<int64_t>(n), limit, 0.7f, out.data());
      for (size_t i = 0; i < n; ++i) {
        const double exact = Exact(gate[i], up[i], limit, 0.7f);
        // Below -88.7, e^-gate overflows and the result is zero instead of at most this.
        ASSERT_NEAR(out[i], exact, 5e-7 * std::abs(exact) + 1e-34) << gate[i] << ", " << up[i];
      }
      // In place over either input.
      std::vector<float> over_gate = gate;
      SwiGlu(over_gate.data(), up.data(), static_cast<int64_t>(n), limit, 0.7f, over_gate.data());
      ExpectSameBits(over_gate, out);
      SwiGlu(gate.data(), up.data(), static_cast<int64_t>(n), limit, 0.7f, up.data());
      ExpectSameBits(up, out);
    }
  }
}

TEST(SwiGlu, LimitClampsTheGateOnlyFromAbove) {
  const float gate = -20;
  const float up = 1;
  float out = 0;
  SwiGlu(&gate, &up, 1, 10.0f, 1.0f, &out);
  EXPECT_NEAR(out, -20 / (1 + std::exp(20.0)), 1e-14);
}

}  // namespace
}  // namespace millrace::kernels
