#pragma once

#include <cstdint>

namespace millrace::kernels {

// 1 / sqrt(mean(x^2) + eps) over n values, the sum of squares in matmul.h's order; n is a multiple of 16.
float ReciprocalRms(const float* x, int64_t n, float eps);

// out[i] = gain[i] * x[i] * ReciprocalRms(x) (shared/spec/v41-text.md, section 1). out may be x.
void RmsNorm(const float* x, const float* gain, int64_t n, float eps, float* out);

}  // namespace millrace::kernels
