#include "base/codecs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

uint32_t Bits(float value) {
  return std::bit_cast<uint32_t>(value);
}
float FromBits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}

// The code whose value is nearest to `value`, even code on a tie, by comparing with all of `magnitudes`
// (ascending, index = code). The distances are exact in double.
uint32_t NearestByTable(const std::vector<float>& magnitudes, float value) {
  const auto above = std::lower_bound(magnitudes.begin(), magnitudes.end(), value);
  if (above == magnitudes.end()) return static_cast<uint32_t>(magnitudes.size() - 1);
  const auto high = static_cast<uint32_t>(above - magnitudes.begin());
  if (high == 0) return 0;
  const double to_high = static_cast<double>(*above) - value;
  const double to_low = static_cast<double>(value) - magnitudes[high - 1];
  if (to_low != to_high) return to_low < to_high ? high - 1 : high;
  return high % 2 == 0 ? high : high - 1;
}

// Non-negative floats that matter for `magnitudes`: each, each midpoint, their neighbours, and a sweep over
// every exponent.
std::vector<float> Probes(const std::vector<float>& magnitudes) {
  std::vector<float> probes = {0.0f, std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                               kInfinity};
  const auto add_with_neighbours = [&probes](float value) {
    for (float probe : {std::nextafter(value, 0.0f), value, std::nextafter(value, kInfinity)})
      probes.push_back(probe);
  };
  for (size_t i = 0; i < magnitudes.size(); ++i) {
    add_with_neighbours(magnitudes[i]);
    if (i > 0) add_with_neighbours((magnitudes[i - 1] + magnitudes[i]) / 2);
  }
  for (uint32_t bits = 0; bits < 0x7F800000u; bits += 4093) probes.push_back(FromBits(bits));
  return probes;
}

TEST(E4m3, DecodesByItsDefinition) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = E4m3ToFloat(static_cast<uint8_t>(code));
    const uint32_t exponent = code >> 3 & 15;
    const uint32_t mantissa = code & 7;
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10);
    EXPECT_EQ(value, static_cast<float>(code & 0x80 ? -magnitude : magnitude)) << code;
    EXPECT_EQ(std::signbit(value), (code & 0x80) != 0) << code;
  }
}

TEST(E4m3, EveryCodeSurvivesDecodingAndEncoding) {
  for (uint32_t code = 0; code < 256; ++code) {
    EXPECT_EQ(FloatToE4m3(E4m3ToFloat(static_cast<uint8_t>(code))), code);
  }
}

TEST(E4m3, EncodesToTheNearestCodeWithTiesToEvenAndSaturates) {
  std::vector<float> magnitudes;
  for (uint32_t code = 0; code <= 0x7E; ++code) magnitudes.push_back(E4m3ToFloat(static_cast<uint8_t>(code)));
  for (float probe : Probes(magnitudes)) {
    const uint32_t expected = NearestByTable(magnitudes, probe);
    ASSERT_EQ(FloatToE4m3(probe), expected) << std::hexfloat << probe;
    ASSERT_EQ(FloatToE4m3(-probe), expected | 0x80) << std::hexfloat << -probe;
  }
  EXPECT_EQ(FloatToE4m3(kNaN) & 0x7F, 0x7F);
}

TEST(E2m1, EveryCodeSurvivesDecodingAndEncoding) {
  constexpr float kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (uint32_t code = 0; code < 16; ++code) {
    const float value = E2m1ToFloat(static_cast<uint8_t>(code));
    EXPECT_EQ(std::fabs(value), kMagnitudes[code & 7]);
    EXPECT_EQ(std::signbit(value), code >= 8);
    EXPECT_EQ(FloatToE2m1(value), code);
  }
}

TEST(E2m1, EncodesToTheNearestCodeWithTiesToEvenAndSaturates) {
  std::vector<float> magnitudes;
  for (uint32_t code = 0; code < 8; ++code) magnitudes.push_back(E2m1ToFloat(static_cast<uint8_t>(code)));
  for (float probe : Probes(magnitudes)) {
    const uint32_t expected = NearestByTable(magnitudes, probe);
    ASSERT_EQ(FloatToE2m1(probe), expected) << std::hexfloat << probe;
    ASSERT_EQ(FloatToE2m1(-probe), expected | 8) << std::hexfloat << -probe;
  }
}

TEST(E8m0, DecodesEveryPowerOfTwo) {
  for (uint32_t code = 0; code < 255; ++code) {
    EXPECT_EQ(E8m0ToFloat(static_cast<uint8_t>(code)), std::ldexp(1.0f, static_cast<int>(code) - 127))
        << code;
  }
  EXPECT_TRUE(std::isnan(E8m0ToFloat(255)));
}

TEST(Bf16, EveryCodeSurvivesDecodingAndEncoding) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const float value = Bf16ToFloat(static_cast<uint16_t>(code));
    ASSERT_EQ(Bits(value), code << 16);
    const uint16_t again = FloatToBf16(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(Bf16ToFloat(again))) << code;
      ASSERT_EQ(again >> 15, code >> 15) << code;
    } else {
      ASSERT_EQ(again, code);
    }
  }
}

TEST(Bf16, RoundsToNearestWithTiesToEven) {
  for (uint32_t code = 0; code < 0x7F80u; ++code) {
    const uint32_t low = code << 16;
    ASSERT_EQ(FloatToBf16(FromBits(low + 0x7FFF)), code);
    ASSERT_EQ(FloatToBf16(FromBits(low + 0x8000)), code + (code & 1));
    ASSERT_EQ(FloatToBf16(FromBits(low + 0x8001)), code + 1);
    ASSERT_EQ(FloatToBf16(-FromBits(low + 0x8001)), (code + 1) | 0x8000);
  }
}

}  // namespace
}  // namespace millrace
