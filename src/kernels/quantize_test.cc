#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <array>

#include "base/codecs.h"
#include "kernels/testing_golden.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

using Quantize = void (*)(const float*, int64_t, uint8_t*, uint8_t*);
using Dequantize = void (*)(const uint8_t*, const uint8_t*, int64_t, float*);

struct Quantiser {
  const char* name;
  Quantize quantize;
  Dequantize dequantize;
  int64_t block;
  int64_t codes_per_byte;
};

constexpr std::array kQuantisers = {
    Quantiser{"Q8", QuantizeQ8, DequantizeQ8, 32, 1},
    Quantiser{"Q4a", QuantizeQ4a, DequantizeQ4a, 32, 2},
    Quantiser{"Q4b", QuantizeQ4b, DequantizeQ4b, 16, 2},
};

struct Quantised {
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
  std::vector<float> values;
};

Quantised Apply(const Quantiser& q, std::span<const float> x) {
  const auto n = static_cast<int64_t>(x.size());
  Quantised out;
  out.codes.resize(x.size() / static_cast<size_t>(q.codes_per_byte));
  out.scales.resize(x.size() / static_cast<size_t>(q.block));
  out.values.resize(x.size());
  q.quantize(x.data(), n, out.codes.data(), out.scales.data());
  q.dequantize(out.codes.data(), out.scales.data(), n, out.values.data());
  return out;
}

// One code per byte, as the goldens have them.
std::vector<uint8_t> Unpacked(const std::vector<uint8_t>& packed) {
  std::vector<uint8_t> codes;
  for (const uint8_t pair : packed) {
    codes.push_back(pair & 15);
    codes.push_back(pair >> 4);
  }
  return codes;
}

constexpr size_t kGoldenRows = 48;
constexpr size_t kGoldenChannels = 96;

TEST(Quantize, EqualsTheGoldensExactly) {
  MILLRACE_SKIP_WITHOUT_GOLDEN("fakequant");
  const UnitGolden golden("fakequant");
  const auto x = golden.Get<float>("x");
  ASSERT_EQ(x.size(), kGoldenRows * kGoldenChannels);
  const std::array prefixes = {"fp8_b32", "fp4_b32", "fp4_b16"};
  for (size_t i = 0; i < kQuantisers.size(); ++i) {
    const Quantiser& q = kQuantisers[i];
    SCOPED_TRACE(q.name);
    const std::string prefix = prefixes[i];
    const auto y = golden.Get<float>(prefix + ".y");
    const auto codes = golden.Get<uint8_t>(prefix + ".codes");
    std::vector<uint8_t> scales;
    if (q.block == 16) {
      scales = golden.Get<uint8_t>(prefix + ".scale_e4m3");
    } else {
      for (const int32_t exponent : golden.Get<int32_t>(prefix + ".scale_exp"))
        scales.push_back(static_cast<uint8_t>(exponent + 127));
    }
    // Whole array at once, then row by row: blocks do not know their neighbours.
    const Quantised all = Apply(q, x);
    EXPECT_EQ(q.codes_per_byte == 1 ? all.codes : Unpacked(all.codes), codes);
    EXPECT_EQ(all.scales, scales);
    ExpectSameBits(all.values, y);
    for (size_t row = 0; row < kGoldenRows; ++row) {
      const auto part = [&](const std::vector<float>& v) {
        return std::span(v).subspan(row * kGoldenChannels, kGoldenChannels);
      };
      ExpectSameBits(Apply(q, part(x)).values, part(y));
    }
  }
}

TEST(Quantize, IsIdempotent) {
  Random random(1);
  std::vector<float> x = RandomFloats(random, 96 * 20);
  for (const Quantiser& q : kQuantisers) {
    const Quantised once = Apply(q, x);
    const Quantised twice = Apply(q, once.values);
    ExpectSameBits(twice.values, once.values);
  }
}

TEST(Quantize, ResultsAreExactInBf16) {
  Random random(2);
  const std::vector<float> x = RandomFloats(random, 96 * 20);
  for (const Quantiser& q : kQuantisers) {
    for (const float y : Apply(q, x).values) ASSERT_EQ(Bf16ToFloat(FloatToBf16(y)), y) << q.name;
  }
}

TEST(Quantize, ZerosKeepTheirSignAndScalesTheirFloor) {
  for (const Quantiser& q : kQuantisers) {
    SCOPED_TRACE(q.name);
    std::vector<float> x(32, 0.0f);
    for (size_t i = 1; i < x.size(); i += 2) x[i] = -0.0f;
    const Quantised out = Apply(q, x);
    ExpectSameBits(out.values, x);
    for (const uint8_t scale : out.scales) EXPECT_GT(scale, 0);
  }
}

TEST(Quantize, TinyAndHugeBlocksStayFinite) {
  for (const Quantiser& q : kQuantisers) {
    SCOPED_TRACE(q.name);
    for (const float magnitude : {0x1p-149f, 0x1p-130f, 1e-30f, 1e-6f, 448.0f, 449.0f, 1e20f, 0x1p127f}) {
      std::vector<float> x(32, -magnitude);
      x[5] = magnitude;
      for (const float y : Apply(q, x).values) ASSERT_TRUE(std::isfinite(y)) << magnitude;
    }
  }
}

// The scale of Q4b is rounded to nearest and may be less than a / 6; the clamp then holds the largest value.
TEST(Quantize, ScaleThatWasRoundedDownClampsTheLargestValue) {
  std::vector<float> x(16, 0.0f);
  x[0] = 6.0f * 1.05f;  // 1.05 lies between the e4m3 values 1 and 1.125, nearer to 1
  const Quantised out = Apply(kQuantisers[2], x);
  EXPECT_EQ(out.scales[0], FloatToE4m3(1.0f));
  EXPECT_EQ(out.values[0], 6.0f);
}

TEST(Quantize, PowerOfTwoScaleIsTheSmallestThatFits) {
  for (int exponent = -5; exponent < 20; ++exponent) {
    std::vector<float> x(32, 0.0f);
    x[31] = std::ldexp(448.0f, exponent);
    EXPECT_EQ(Apply(kQuantisers[0], x).scales[0], 127 + exponent);
    x[31] = std::nextafter(x[31], 2 * x[31]);
    // One float32 step more may vanish in the product with float32(1/448), two do not.
    x[31] = std::nextafter(x[31], 2 * x[31]);
    EXPECT_EQ(Apply(kQuantisers[0], x).scales[0], 128 + exponent);
  }
}

TEST(Dequantize, DecodesEveryCode) {
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  std::vector<float> out(512);
  const std::vector<uint8_t> scales(32, 130);
  DequantizeQ8(codes.data(), scales.data(), 256, out.data());
  for (size_t i = 0; i < 256; ++i)
    ASSERT_EQ(Bits(out[i]), Bits(E4m3ToFloat(static_cast<uint8_t>(i)) * 8.0f)) << i;
  DequantizeQ4a(codes.data(), scales.data(), 512, out.data());
  for (size_t i = 0; i < 512; ++i) {
    const uint8_t code = i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
    ASSERT_EQ(Bits(out[i]), Bits(E2m1ToFloat(code) * 8.0f)) << i;
  }
  const std::vector<uint8_t> e4m3_scales(32, FloatToE4m3(13.0f));
  DequantizeQ4b(codes.data(), e4m3_scales.data(), 512, out.data());
  for (size_t i = 0; i < 512; ++i) {
    const uint8_t code = i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
    ASSERT_EQ(Bits(out[i]), Bits(E2m1ToFloat(code) * 13.0f)) << i;
  }
}

}  // namespace
}  // namespace millrace::kernels
