#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/codecs.h"
#include "kernels/matmul.h"

// The plain meaning of matmul.h, one value at a time, which the vector code must equal bit for bit.
namespace millrace::kernels::ref {

inline float WeightAt(const WeightMatrix& a, int64_t row, int64_t col) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(a.data);
  const auto* scales = reinterpret_cast<const uint8_t*>(a.scales);
  switch (a.format) {
    case WeightFormat::kF32:
      return reinterpret_cast<const float*>(a.data)[row * a.cols + col];
    case WeightFormat::kBf16:
      return Bf16ToFloat(reinterpret_cast<const uint16_t*>(a.data)[row * a.cols + col]);
    case WeightFormat::kFp8Tile32:
      return E4m3ToFloat(bytes[row * a.cols + col]) *
             E8m0ToFloat(scales[row / 32 * (a.cols / 32) + col / 32]);
    case WeightFormat::kFp4Row32: {
      const uint8_t pair = bytes[row * (a.cols / 2) + col / 2];
      const uint8_t code = col % 2 == 0 ? pair & 15 : pair >> 4;
      return E2m1ToFloat(code) * E8m0ToFloat(scales[row * (a.cols / 32) + col / 32]);
    }
  }
  return 0;
}

inline float SumTree(const std::array<float, 16>& s) {
  std::array<float, 8> a;
  for (size_t l = 0; l < 8; ++l) a[l] = s[l] + s[l + 8];
  std::array<float, 4> b;
  for (size_t l = 0; l < 4; ++l) b[l] = a[l] + a[l + 4];
  return (b[0] + b[2]) + (b[1] + b[3]);
}

inline float Dot(const float* a, const float* b, size_t n) {
  std::array<float, 16> sums{};
  for (size_t i = 0; i < n; ++i) sums[i % 16] = std::fma(a[i], b[i], sums[i % 16]);
  return SumTree(sums);
}

inline float RowDot(const WeightMatrix& a, int64_t row, const float* x) {
  std::array<float, 16> sums{};
  for (int64_t i = 0; i < a.cols; ++i) {
    float& sum = sums[static_cast<size_t>(i % 16)];
    sum = std::fma(WeightAt(a, row, i), x[i], sum);
  }
  return SumTree(sums);
}

}  // namespace millrace::kernels::ref
