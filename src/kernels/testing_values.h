#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

// For tests only: inputs with awkward values in them, and comparison by bits.
namespace millrace::kernels {

using Random = std::mt19937;

// Normally distributed values over many binades, so that a changed order of sums changes bits.
inline std::vector<float> RandomFloats(Random& random, size_t n) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-6, 6);
  std::vector<float> values(n);
  for (float& v : values) {
    const float mantissa = normal(random);  // apart, so that every compiler draws in this order
    v = std::ldexp(mantissa, exponent(random));
  }
  return values;
}

inline std::vector<std::byte> RandomBytes(Random& random, size_t n) {
  std::uniform_int_distribution<int> byte(0, 255);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(byte(random));
  return bytes;
}

// Overwrites about every fifth value with a zero, a subnormal or the largest finite value, of either sign.
inline void SprinkleFiniteExtremes(Random& random, std::span<float> values) {
  constexpr float kExtremes[] = {0.0f,        -0.0f,      0x1p-149f,      -0x1p-149f,
                                 0x1.8p-130f, -0x1p-127f, 0x1.fffffep127f};
  std::uniform_int_distribution<size_t> pick(0, std::size(kExtremes) * 5 - 1);
  for (float& v : values) {
    const size_t choice = pick(random);
    if (choice < std::size(kExtremes)) v = kExtremes[choice];
  }
}

// Bit patterns, with all NaNs as one: which NaN comes out of an operation is the machine's choice.
inline uint32_t Bits(float value) {
  return std::isnan(value) ? 0x7FC00000u : std::bit_cast<uint32_t>(value);
}

inline void ExpectSameBits(std::span<const float> actual, std::span<const float> expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(Bits(actual[i]), Bits(expected[i]))
        << "element " << i << ": " << actual[i] << " instead of " << expected[i];
  }
}

}  // namespace millrace::kernels
