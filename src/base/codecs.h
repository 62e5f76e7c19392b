#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

// The element formats of the released checkpoint, one value at a time (shared/spec/v41-text.md, section 3.1).
// Decoding is exact. Here rather than in formats because kernels need them too (docs/decisions/0002).

namespace millrace {

// e4m3fn: sign 1, exponent 4 (bias 7), mantissa 3; no infinities, 0x7F and 0xFF are NaN, largest 448.
constexpr float E4m3ToFloat(uint8_t code) {
  const uint32_t sign = uint32_t{code} >> 7 << 31;
  const uint32_t exponent = code >> 3 & 15;
  const uint32_t mantissa = code & 7;
  if ((code & 0x7F) == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | (exponent + 120) << 23 | mantissa << 20);
}

// Round to nearest, ties to even; saturates at 448; keeps the sign of zero; NaN becomes 0x7F or 0xFF.
inline uint8_t FloatToE4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>(bits >> 31 << 7);
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7F;
  if (magnitude >= std::bit_cast<uint32_t>(448.0f)) return sign | 0x7E;
  if (magnitude < std::bit_cast<uint32_t>(0x1p-6f)) {
    // Subnormal codes count multiples of 2^-9; adding 2^23 rounds to an integer, ties to even. A count of 8
    // is the code of 2^-6, the first normal.
    const float count = std::bit_cast<float>(magnitude) * 512.0f + 0x1p23f;
    return sign | static_cast<uint8_t>(std::bit_cast<uint32_t>(count) & 0xF);
  }
  magnitude += 0x7FFFFu + (magnitude >> 20 & 1);
  return sign | static_cast<uint8_t>((magnitude >> 20) - (120u << 3));
}

// e2m1: bit 3 sign, bits 0-2 index the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6. Code 8 is -0. `code` < 16.
constexpr float E2m1ToFloat(uint8_t code) {
  constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitudes[code & 7];
  return (code & 8) ? -magnitude : magnitude;
}

// Nearest magnitude, midpoints to the even code (0.25, 1.25, 2.5, 5 down; 0.75, 1.75, 3.5 up); saturates at
// 6; keeps the sign, of zero too. `value` is not NaN.
inline uint8_t FloatToE2m1(float value) {
  const float a = std::fabs(value);
  // clang-format off
  const uint8_t magnitude = a <= 0.25f ? 0 : a < 0.75f ? 1 : a <= 1.25f ? 2 : a < 1.75f ? 3
                          : a <= 2.5f ? 4 : a < 3.5f ? 5 : a <= 5.0f ? 6 : 7;
  // clang-format on
  return static_cast<uint8_t>(magnitude | (std::signbit(value) ? 8 : 0));
}

// ue8m0: 2^(code - 127); 255 is NaN; 0 is 2^-127, a float32 subnormal.
constexpr float E8m0ToFloat(uint8_t code) {
  if (code == 0) return std::bit_cast<float>(0x00400000u);
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(uint32_t{code} << 23);
}

constexpr float Bf16ToFloat(uint16_t code) {
  return std::bit_cast<float>(uint32_t{code} << 16);
}

// Round to nearest, ties to even; NaN stays NaN.
constexpr uint16_t FloatToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);
  bits += 0x7FFFu + (bits >> 16 & 1);
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace millrace
