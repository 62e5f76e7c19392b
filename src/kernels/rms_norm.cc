#include "kernels/rms_norm.h"

#include <cmath>

#include "kernels/matmul.h"

namespace millrace::kernels {

float ReciprocalRms(const float* x, int64_t n, float eps) {
  return 1.0f / std::sqrt(SumOfSquares(x, static_cast<size_t>(n)) / static_cast<float>(n) + eps);
}

void RmsNorm(const float* x, const float* gain, int64_t n, float eps, float* out) {
  const float scale = ReciprocalRms(x, n, eps);
  for (int64_t i = 0; i < n; ++i) out[i] = gain[i] * (x[i] * scale);
}

}  // namespace millrace::kernels
