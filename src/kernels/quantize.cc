#include "kernels/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/codecs.h"

namespace millrace::kernels {
namespace {

// The ue8m0 code of the smallest power of two >= t, t positive.
uint8_t PowerOfTwoAtLeast(float t) {
  const uint32_t bits = std::bit_cast<uint32_t>(t);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1 : 0));
}

float MaxAbs(const float* x, int64_t n) {
  float m = 0;
  for (int64_t i = 0; i < n; ++i) m = std::max(m, std::fabs(x[i]));
  return m;
}

// Packs e2m1 codes of x / scale, clamped to +-6.
void PackE2m1(const float* x, int64_t n, float scale, uint8_t* codes) {
  for (int64_t i = 0; i < n; i += 2) {
    const uint8_t even = FloatToE2m1(std::clamp(x[i] / scale, -6.0f, 6.0f));
    const uint8_t odd = FloatToE2m1(std::clamp(x[i + 1] / scale, -6.0f, 6.0f));
    codes[i / 2] = static_cast<uint8_t>(even | odd << 4);
  }
}

// Both values of every code pair.
constexpr std::array<std::array<float, 2>, 256> kE2m1Pairs = [] {
  std::array<std::array<float, 2>, 256> pairs{};
  for (size_t code = 0; code < 256; ++code) {
    pairs[code] = {E2m1ToFloat(static_cast<uint8_t>(code & 15)),
                   E2m1ToFloat(static_cast<uint8_t>(code >> 4))};
  }
  return pairs;
}();

constexpr std::array<float, 256> kE4m3 = [] {
  std::array<float, 256> values{};
  for (size_t code = 0; code < 256; ++code) values[code] = E4m3ToFloat(static_cast<uint8_t>(code));
  return values;
}();

void UnpackE2m1(const uint8_t* codes, int64_t n, float scale, float* out) {
  for (int64_t i = 0; i < n; i += 2) {
    const std::array<float, 2>& pair = kE2m1Pairs[codes[i / 2]];
    out[i] = pair[0] * scale;
    out[i + 1] = pair[1] * scale;
  }
}

}  // namespace

void QuantizeQ8(const float* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  constexpr float kReciprocal = 1.0f / 448.0f;
  for (int64_t block = 0; block < n / 32; ++block) {
    const float* v = x + block * 32;
    scales[block] = PowerOfTwoAtLeast(std::max(MaxAbs(v, 32), 1e-4f) * kReciprocal);
    const float scale = E8m0ToFloat(scales[block]);
    for (int64_t i = 0; i < 32; ++i) {
      codes[block * 32 + i] = FloatToE4m3(std::clamp(v[i] / scale, -448.0f, 448.0f));
    }
  }
}

void DequantizeQ8(const uint8_t* codes, const uint8_t* scales, int64_t n, float* out) {
  for (int64_t block = 0; block < n / 32; ++block) {
    const float scale = E8m0ToFloat(scales[block]);
    for (int64_t i = block * 32; i < block * 32 + 32; ++i) out[i] = kE4m3[codes[i]] * scale;
  }
}

void QuantizeQ4a(const float* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  constexpr float kReciprocal = 1.0f / 6.0f;
  constexpr float kFloor = 6.0f * 0x1p-126f;
  for (int64_t block = 0; block < n / 32; ++block) {
    const float* v = x + block * 32;
    scales[block] = PowerOfTwoAtLeast(std::max(MaxAbs(v, 32), kFloor) * kReciprocal);
    PackE2m1(v, 32, E8m0ToFloat(scales[block]), codes + block * 16);
  }
}

void DequantizeQ4a(const uint8_t* codes, const uint8_t* scales, int64_t n, float* out) {
  for (int64_t block = 0; block < n / 32; ++block) {
    UnpackE2m1(codes + block * 16, 32, E8m0ToFloat(scales[block]), out + block * 32);
  }
}

void QuantizeQ4b(const float* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  constexpr float kFloor = 6.0f * 0x1p-9f;
  for (int64_t block = 0; block < n / 16; ++block) {
    const float* v = x + block * 16;
    scales[block] = FloatToE4m3(std::max(MaxAbs(v, 16), kFloor) / 6.0f);
    PackE2m1(v, 16, E4m3ToFloat(scales[block]), codes + block * 8);
  }
}

void DequantizeQ4b(const uint8_t* codes, const uint8_t* scales, int64_t n, float* out) {
  for (int64_t block = 0; block < n / 16; ++block) {
    UnpackE2m1(codes + block * 8, 16, E4m3ToFloat(scales[block]), out + block * 16);
  }
}

}  // namespace millrace::kernels
