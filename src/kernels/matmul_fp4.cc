#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_fp4.cc"
#include "kernels/targets.h"
// After targets.h: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include "base/codecs.h"
#include "kernels/matmul-inl.h"
#include "kernels/matmul_formats.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// The 32 codes of one block as twice their values, which are integers.
HWY_INLINE void TwiceValues(const uint8_t* HWY_RESTRICT codes, int8_t* HWY_RESTRICT values) {
  alignas(16) static constexpr int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; i < 32; ++i) values[i] = kTwice[i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4];
#else
  const hn::FixedTag<uint8_t, 16> d16;
  const hn::FixedTag<int8_t, 16> ds16;
  const auto table = hn::BitCast(d16, hn::Load(ds16, kTwice));
  const auto pairs = hn::LoadU(d16, codes);
  const auto even = hn::TableLookupBytes(table, hn::And(pairs, hn::Set(d16, uint8_t{15})));
  const auto odd = hn::TableLookupBytes(table, hn::ShiftRight<4>(pairs));
  hn::Store(hn::BitCast(ds16, hn::InterleaveLower(even, odd)), ds16, values);
  hn::Store(hn::BitCast(ds16, hn::InterleaveUpper(d16, even, odd)), ds16, values + 16);
#endif
}

const float* Fp4Row32Row(const WeightMatrix& a, int64_t row, float* out) {
  const DF d;
  const hn::Rebind<int32_t, DF> di32;
  const hn::Rebind<int8_t, DF> di8;
  const auto cols = static_cast<size_t>(a.cols);
  const auto r = static_cast<size_t>(row);
  const uint8_t* codes = reinterpret_cast<const uint8_t*>(a.data) + r * (cols / 2);
  const uint8_t* scales = reinterpret_cast<const uint8_t*>(a.scales) + r * (cols / 32);
  for (size_t block = 0; block < cols / 32; ++block) {
    const VF half_scale = hn::Set(d, E8m0ToFloat(scales[block]) * 0.5f);
    alignas(16) int8_t values[32];
    TwiceValues(codes + block * 16, values);
    for (size_t i = 0; i < 32; i += kVecLanes) {
      const auto wide = hn::PromoteTo(di32, hn::LoadU(di8, values + i));
      hn::StoreU(hn::Mul(hn::ConvertTo(d, wide), half_scale), d, out + block * 32 + i);
    }
  }
  return out;
}

void Fp4Row32MatMul(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                    float* y, int64_t y_stride, float* scratch) {
  MatMulRows(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch,
             [&](int64_t row, float* out) HWY_ATTR { return Fp4Row32Row(a, row, out); });
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
HWY_EXPORT(Fp4Row32MatMul);
HWY_EXPORT(Fp4Row32Row);

void MatMulFp4Row32(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                    float* y, int64_t y_stride, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Fp4Row32MatMul)(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
}

void DecodeRowFp4Row32(const WeightMatrix& a, int64_t row, float* out) {
  HWY_DYNAMIC_DISPATCH(Fp4Row32Row)(a, row, out);
}

}  // namespace millrace::kernels
#endif
