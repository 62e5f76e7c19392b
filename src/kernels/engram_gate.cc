#include "kernels/engram_gate.h"

#include <algorithm>
#include <cmath>

#include "kernels/matmul.h"
#include "kernels/rms_norm.h"

namespace millrace::kernels {

float EngramGate(const float* x, const float* gain, const float* key, int64_t n, float eps, float* scratch) {
  for (int64_t d = 0; d < n; ++d) scratch[d] = x[d] * gain[d];
  const float dot = Dot(scratch, key, static_cast<size_t>(n)) * ReciprocalRms(x, n, eps) *
                    ReciprocalRms(key, n, eps) / std::sqrt(static_cast<float>(n));
  const float root = std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot);
  return 1.0f / (1.0f + std::exp(-root));
}

}  // namespace millrace::kernels
