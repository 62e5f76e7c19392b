#pragma once

#include <cstdint>

namespace millrace::kernels {

// scores[j] = sum_h weights[h] * (max(q_h . key_j, 0) * scale), summed over heads in rising order
// (shared/spec/v41-text.md, section 5.5). q is [n_heads, dim], keys [n_keys, dim], both on the e2m1 grid with
// power-of-two scales; dim is a multiple of 16. Dot products as in matmul.h.
void IndexScores(const float* q, const float* weights, int64_t n_heads, int64_t dim, const float* keys,
                 int64_t n_keys, float scale, float* scores);

}  // namespace millrace::kernels
