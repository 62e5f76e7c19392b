#pragma once

#include "kernels/matmul.h"

// One source file per weight format; matmul.cc picks. Contracts as in matmul.h.
namespace millrace::kernels {

#define MILLRACE_DECLARE_MATMUL(Format)                                                       \
  void MatMul##Format(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, \
                      int64_t n_tokens, float* y, int64_t y_stride, float* scratch);          \
  void DecodeRow##Format(const WeightMatrix& a, int64_t row, float* out)

MILLRACE_DECLARE_MATMUL(F32);
MILLRACE_DECLARE_MATMUL(Bf16);
MILLRACE_DECLARE_MATMUL(Fp8Tile32);
MILLRACE_DECLARE_MATMUL(Fp4Row32);

#undef MILLRACE_DECLARE_MATMUL

bool IsOrdinaryFp8Tile32(const WeightMatrix& a);

}  // namespace millrace::kernels
