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

class F32Row {
 public:
  using Elements = FloatElements;
  static constexpr size_t kBits = 32;
  static constexpr size_t kBlocksAtOnce = 1;
  static constexpr bool kIsFloats = true;
  F32Row() = default;
  F32Row(const WeightMatrix& a, int64_t row) : row_(reinterpret_cast<const float*>(a.data) + row * a.cols) {}
  const float* floats() const { return row_; }

  HWY_INLINE void Prefetch(size_t at) const {
    __builtin_prefetch(reinterpret_cast<const char*>(row_) + at * kBits / 8);
  }

  HWY_INLINE void Block(size_t at, VF (&values)[kBlockVecs]) const {
    for (size_t v = 0; v < kBlockVecs; ++v) values[v] = hn::LoadU(DF(), row_ + at + v * kVecLanes);
  }

 private:
  const float* row_;
};

void F32MatMul(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
               float* y, int64_t y_stride, float* scratch) {
  MatMulRows<F32Row>(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
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
