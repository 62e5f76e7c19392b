#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/matmul_ref.h"

// The plain meaning of index_score.h, which the vector code must equal bit for bit.
namespace millrace::kernels::ref {

inline float IndexScore(const float* q, const float* weights, int64_t n_heads, int64_t dim, const float* key,
                        float scale) {
  float score = 0;
  for (int64_t h = 0; h < n_heads; ++h)
    score += weights[h] * (std::max(Dot(q + h * dim, key, static_cast<size_t>(dim)), 0.0f) * scale);
  return score;
}

}  // namespace millrace::kernels::ref
