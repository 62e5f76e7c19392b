#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_f32.cc"
#include "kernels/targets.h"
// After targets.h: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include "kernels/matmul-inl.h"
#include "kernels/matmul_formats.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

void F32MatMul(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
               float* y, int64_t y_stride, float* scratch) {
  const auto* rows = reinterpret_cast<const float*>(a.data);
  MatMulRows(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch,
             [&](int64_t row, float*) HWY_ATTR { return rows + row * a.cols; });
}

float DotF32(const float* a, const float* b, size_t n) {
  const float* rows[kTileRows];
  for (size_t r = 0; r < kTileRows; ++r) rows[r] = a;
  float out[kTileRows];
  DotTile<1>(rows, &b, n, out);
  return out[0];
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

namespace millrace::kernels {
HWY_EXPORT(F32MatMul);
HWY_EXPORT(DotF32);

void MatMulF32(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
               float* y, int64_t y_stride, float* scratch) {
  HWY_DYNAMIC_DISPATCH(F32MatMul)(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
}

void DecodeRowF32(const WeightMatrix& a, int64_t row, float* out) {
  const auto cols = static_cast<size_t>(a.cols);
  std::memcpy(out, a.data + static_cast<size_t>(row) * cols * sizeof(float), cols * sizeof(float));
}

float Dot(const float* a, const float* b, size_t n) {
  return HWY_DYNAMIC_DISPATCH(DotF32)(a, b, n);
}

float SumOfSquares(const float* a, size_t n) {
  return Dot(a, a, n);
}

}  // namespace millrace::kernels
#endif
