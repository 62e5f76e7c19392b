#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_fp8.cc"
#include "kernels/targets.h"
// After targets.h: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include "base/codecs.h"
#include "kernels/matmul-inl.h"
#include "kernels/matmul_formats.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// Eight-bit codes to float32, exactly: normals by moving the fields into place, subnormals (m * 2^-9) as
// (1 + m/8) * 2^-6 - 2^-6, NaN codes to NaN.
template <class V32>
HWY_INLINE VF DecodeE4m3(V32 codes) {
  const DF d;
  const hn::Rebind<uint32_t, DF> d32;
  const auto magnitude = hn::And(codes, hn::Set(d32, 0x7Fu));
  const auto sign = hn::ShiftLeft<24>(hn::Xor(codes, magnitude));
  const auto fields = hn::ShiftLeft<20>(magnitude);
  const auto normal = hn::Add(fields, hn::Set(d32, 120u << 23));
  const auto subnormal =
      hn::Sub(hn::BitCast(d, hn::Add(fields, hn::Set(d32, 121u << 23))), hn::Set(d, 0x1p-6f));
  auto bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d32, 8u)), hn::BitCast(d32, subnormal), normal);
  bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d32, 0x7Fu)), hn::Set(d32, 0x7FC00000u), bits);
  return hn::BitCast(d, hn::Or(bits, sign));
}

const float* Fp8Tile32Row(const WeightMatrix& a, int64_t row, float* out) {
  const DF d;
  const hn::Rebind<uint32_t, DF> d32;
  const hn::Rebind<uint8_t, DF> d8;
  const auto cols = static_cast<size_t>(a.cols);
  const auto r = static_cast<size_t>(row);
  const uint8_t* codes = reinterpret_cast<const uint8_t*>(a.data) + r * cols;
  const uint8_t* scales = reinterpret_cast<const uint8_t*>(a.scales) + r / 32 * (cols / 32);
  for (size_t block = 0; block < cols / 32; ++block) {
    const VF scale = hn::Set(d, E8m0ToFloat(scales[block]));
    for (size_t i = block * 32; i < block * 32 + 32; i += kVecLanes) {
      const VF value = DecodeE4m3(hn::PromoteTo(d32, hn::LoadU(d8, codes + i)));
      hn::StoreU(hn::Mul(value, scale), d, out + i);
    }
  }
  return out;
}

void Fp8Tile32MatMul(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                     float* y, int64_t y_stride, float* scratch) {
  MatMulRows(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch,
             [&](int64_t row, float* out) HWY_ATTR { return Fp8Tile32Row(a, row, out); });
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
HWY_EXPORT(Fp8Tile32MatMul);
HWY_EXPORT(Fp8Tile32Row);

void MatMulFp8Tile32(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                     float* y, int64_t y_stride, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Fp8Tile32MatMul)(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
}

void DecodeRowFp8Tile32(const WeightMatrix& a, int64_t row, float* out) {
  HWY_DYNAMIC_DISPATCH(Fp8Tile32Row)(a, row, out);
}

}  // namespace millrace::kernels
#endif
