#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/codecs.h"
#include "kernels/matmul_int8.h"

// The plain meaning of matmul_int8.h, one value at a time, which the vector code must equal bit for bit.
namespace millrace::kernels::ref {

inline void QuantizeInt8(const float* x, int64_t n, QuantizedGroup* groups) {
  if (n % 128 != 0) groups[n / 128] = {};
  for (int64_t b = 0; b < n / 32; ++b) {
    QuantizedGroup& group = groups[b / 4];
    float a = 0;
    for (int64_t i = 32 * b; i < 32 * (b + 1); ++i) a = std::max(a, std::fabs(x[i]));
    if (a < 0x1p-100f) a = 0;
    const float step = a / 127.0f;
    int32_t sum = 0;
    for (int64_t i = 0; i < 32; ++i) {
      const auto code = static_cast<int8_t>(a == 0 ? 0.0f : std::nearbyint(x[32 * b + i] * (1.0f / step)));
      (i % 2 == 0 ? group.even : group.odd)[16 * (b % 4) + i / 2] = code;
      sum += code;
    }
    group.scales[b % 4] = step * 0.5f;
    group.offsets[b % 4] = -12 * sum;
  }
}

// A[row] . x.
inline float RowDotInt8(const WeightMatrix& a, int64_t row, const QuantizedGroup* x) {
  const auto* codes = reinterpret_cast<const uint8_t*>(a.data) + row * (a.cols / 2);
  const auto* scales = reinterpret_cast<const uint8_t*>(a.scales) + row * (a.cols / 32);
  float sum = 0;
  for (int64_t b = 0; b < a.cols / 32; ++b) {
    const QuantizedGroup& group = x[b / 4];
    int32_t products = 0;
    for (int64_t i = 0; i < 16; ++i) {
      const uint8_t pair = codes[16 * b + i];
      products += static_cast<int32_t>(2.0f * E2m1ToFloat(pair & 15)) * group.even[16 * (b % 4) + i];
      products += static_cast<int32_t>(2.0f * E2m1ToFloat(pair >> 4)) * group.odd[16 * (b % 4) + i];
    }
    sum = std::fma(static_cast<float>(products), E8m0ToFloat(scales[b]) * group.scales[b % 4], sum);
  }
  return sum;
}

}  // namespace millrace::kernels::ref
