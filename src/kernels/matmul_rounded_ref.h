#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/codecs.h"
#include "kernels/matmul_ref.h"

// The plain meaning of matmul_rounded.h, one value at a time, which the vector code must equal bit for bit.
namespace millrace::kernels::ref {

inline float RoundedInput(float x) {
  if (!(std::fabs(x) <= 0x1p50f)) return std::numeric_limits<float>::quiet_NaN();
  return std::fabs(x) < 0x1p-60f ? 0.0f : Bf16ToFloat(FloatToBf16(x));
}

// A[row] . x, of an x that is not rounded yet.
inline float RowDotRounded(const WeightMatrix& a, int64_t row, const float* x) {
  std::array<float, 16> sums{};
  for (int64_t b = 0; b < a.cols; b += 32) {
    for (int64_t l = 0; l < 16; ++l) {
      float& sum = sums[static_cast<size_t>(l)];
      for (const int64_t i : {b + 2 * l + 1, b + 2 * l})
        sum = std::fma(WeightAt(a, row, i), RoundedInput(x[i]), sum);
    }
  }
  return SumTree(sums);
}

}  // namespace millrace::kernels::ref
