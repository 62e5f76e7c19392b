#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// The plain meaning of exp-inl.h, which must equal it bit for bit.
namespace millrace::kernels::ref {

// e^x = 2^k * e^r with k the integer nearest to x / ln 2 and |r| <= ln(2) / 2;
// e^r = 1 + r + r^2 * (c2 + c3 r + c4 r^2 + c5 r^3 + c6 r^4), the minimax fit of relative error on that
// range.
struct ExpConstants {
  static constexpr float kLog2E = 0x1.715476p0f;
  static constexpr float kShifter = 0x1.8p23f;  // adding it leaves an integer, rounded to nearest
  static constexpr int32_t kShifterBits = std::bit_cast<int32_t>(kShifter);
  static constexpr float kLn2High = 0x1.62e4p-1f;  // few enough bits that k * kLn2High is exact
  static constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  static constexpr float kC2 = 0x1.fffffcp-2f;
  static constexpr float kC3 = 0x1.555492p-3f;
  static constexpr float kC4 = 0x1.5558f2p-5f;
  static constexpr float kC5 = 0x1.123a2p-7f;
  static constexpr float kC6 = 0x1.6a23dp-10f;
  static constexpr float kZeroBelow = -0x1.5d589ep6f;  // ln of the smallest normal float32
};

// e^x for x <= 0, within 1.01 ulp; zero where the result would be below the smallest normal float32; NaN for
// NaN.
inline float ExpNonPositive(float x) {
  using C = ExpConstants;
  if (x < C::kZeroBelow) return 0;
  const float shifted = std::fma(x, C::kLog2E, C::kShifter);
  const float k = shifted - C::kShifter;
  float r = std::fma(k, -C::kLn2High, x);
  r = std::fma(k, -C::kLn2Low, r);
  float q = C::kC6;
  q = std::fma(q, r, C::kC5);
  q = std::fma(q, r, C::kC4);
  q = std::fma(q, r, C::kC3);
  q = std::fma(q, r, C::kC2);
  const float p = std::fma(q, r * r, r) + 1.0f;
  const uint32_t biased = std::bit_cast<uint32_t>(shifted) - static_cast<uint32_t>(C::kShifterBits - 127);
  return p * std::bit_cast<float>(biased << 23);
}

}  // namespace millrace::kernels::ref
