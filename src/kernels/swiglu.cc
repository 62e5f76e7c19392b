#include "kernels/swiglu.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::kernels {

void SwiGlu(const float* gate, const float* up, int64_t n, float limit, float weight, float* out) {
  const float bound = limit > 0 ? limit : std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) {
    const float g = std::min(gate[i], bound);
    const float u = std::clamp(up[i], -bound, bound);
    out[i] = weight * (g / (1.0f + std::exp(-g)) * u);
  }
}

}  // namespace millrace::kernels
