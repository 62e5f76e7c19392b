#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_fp8.cc"
#include "kernels/targets.h"
// After targets.h: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <array>

#include "base/codecs.h"
#include "kernels/matmul-inl.h"
#include "kernels/matmul_formats.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

class Fp8TileRow {
 public:
  static constexpr bool kIsFloats = false;
  Fp8TileRow() = default;
  Fp8TileRow(const WeightMatrix& a, int64_t row)
      : codes_(reinterpret_cast<const int8_t*>(a.data) + row * a.cols),
        scales_(reinterpret_cast<const uint8_t*>(a.scales) + row / 32 * (a.cols / 32)) {}

  HWY_INLINE void Block(size_t at, VF (&values)[kBlockVecs]) const {
    const DF d;
    const uint8_t scale_code = scales_[at / 32];
    VF scale = hn::Set(d, kScalesTimes256[scale_code]);
    for (size_t v = 0; v < kBlockVecs; ++v) values[v] = Decode256ths(codes_ + at + v * kVecLanes);
    if (scale_code > kLargestScaleTimes256) [[unlikely]] {
      for (VF& value : values) value = hn::Mul(value, hn::Set(d, 256.0f));
      scale = hn::Set(d, E8m0ToFloat(scale_code));
    }
    for (VF& value : values) value = hn::Mul(value, scale);
  }

 private:
  // Scales beyond this one would overflow when multiplied by 256.
  static constexpr uint8_t kLargestScaleTimes256 = 246;
  static constexpr std::array<float, 256> kScalesTimes256 = [] {
    std::array<float, 256> scales{};
    for (size_t code = 0; code <= kLargestScaleTimes256; ++code)
      scales[code] = E8m0ToFloat(static_cast<uint8_t>(code)) * 256.0f;
    return scales;
  }();

  // kVecLanes codes as value / 256, exactly.
  static HWY_INLINE VF Decode256ths(const int8_t* codes) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    // Highway's emulation of float16 knows no NaN.
    alignas(16) float values[kVecLanes];
    for (size_t l = 0; l < kVecLanes; ++l) values[l] = E4m3ToFloat(static_cast<uint8_t>(codes[l])) * 0x1p-8f;
    return hn::Load(DF(), values);
#else
    // Seven places to the left, an e4m3 code is the float16 of that value: the exponent's bias is 15 instead
    // of 7 and subnormals stay subnormal. Only NaN needs care: adding one to its mantissa carries into the
    // exponent's top bit, which is then set there and nowhere else.
    const hn::Rebind<int8_t, DF> d8;
    const hn::Rebind<int16_t, DF> d16;
    const hn::Rebind<hwy::float16_t, DF> df16;
    const auto shifted = hn::ShiftLeft<7>(hn::PromoteTo(d16, hn::LoadU(d8, codes)));
    const auto half = hn::And(shifted, hn::Set(d16, static_cast<int16_t>(0xBFFF)));
    const auto carry = hn::Add(half, hn::Set(d16, 0x0080));
    return hn::PromoteTo(DF(), hn::BitCast(df16, hn::OrAnd(half, carry, hn::Set(d16, 0x4000))));
#endif
  }

  const int8_t* codes_;
  const uint8_t* scales_;
};

void Fp8Tile32Decode(const WeightMatrix& a, int64_t row, float* out) {
  DecodeInto(Fp8TileRow(a, row), 0, static_cast<size_t>(a.cols), out);
}

void Fp8Tile32MatMul(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                     float* y, int64_t y_stride, float* scratch) {
  MatMulRows<Fp8TileRow>(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
HWY_EXPORT(Fp8Tile32MatMul);
HWY_EXPORT(Fp8Tile32Decode);

void MatMulFp8Tile32(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                     float* y, int64_t y_stride, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Fp8Tile32MatMul)(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
}

void DecodeRowFp8Tile32(const WeightMatrix& a, int64_t row, float* out) {
  HWY_DYNAMIC_DISPATCH(Fp8Tile32Decode)(a, row, out);
}

}  // namespace millrace::kernels
#endif
