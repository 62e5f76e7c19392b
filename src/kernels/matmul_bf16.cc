#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_bf16.cc"
#include "kernels/targets.h"
// After targets.h: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include "kernels/matmul-inl.h"
#include "kernels/matmul_formats.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

const float* Bf16Row(const WeightMatrix& a, int64_t row, float* out) {
  const DF d;
  const hn::Rebind<uint32_t, DF> d32;
  const hn::Rebind<uint16_t, DF> d16;
  const auto cols = static_cast<size_t>(a.cols);
  const uint16_t* codes = reinterpret_cast<const uint16_t*>(a.data) + static_cast<size_t>(row) * cols;
  for (size_t i = 0; i < cols; i += kVecLanes) {
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, codes + i)));
    hn::StoreU(hn::BitCast(d, bits), d, out + i);
  }
  return out;
}

void Bf16MatMul(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                float* y, int64_t y_stride, float* scratch) {
  MatMulRows(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch,
             [&](int64_t row, float* out) HWY_ATTR { return Bf16Row(a, row, out); });
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
HWY_EXPORT(Bf16MatMul);
HWY_EXPORT(Bf16Row);

void MatMulBf16(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                float* y, int64_t y_stride, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Bf16MatMul)(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
}

void DecodeRowBf16(const WeightMatrix& a, int64_t row, float* out) {
  HWY_DYNAMIC_DISPATCH(Bf16Row)(a, row, out);
}

}  // namespace millrace::kernels
#endif
