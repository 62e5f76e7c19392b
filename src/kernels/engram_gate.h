#pragma once

#include <cstdint>

namespace millrace::kernels {

// The gate of one residual stream's n-gram memory (shared/spec/v41-text.md, section 5.2):
//   dot = (sum_d x[d] * gain[d] * key[d]) * rsqrt(mean x^2 + eps) * rsqrt(mean key^2 + eps) / sqrt(n)
//   gate = sigmoid(sign(dot) * sqrt(max(|dot|, 1e-6)))
// gain is q_weight * k_weight. `scratch` is [n]. Sums in matmul.h's order; n is a multiple of 16.
float EngramGate(const float* x, const float* gain, const float* key, int64_t n, float eps, float* scratch);

}  // namespace millrace::kernels
