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

class Bf16Row {
 public:
  using Elements = FloatElements;
  static constexpr size_t kBits = 16;
  static constexpr size_t kBlocksAtOnce = 1;
  static constexpr bool kIsFloats = false;
  Bf16Row() = default;
  Bf16Row(const WeightMatrix& a, int64_t row)
      : codes_(reinterpret_cast<const uint16_t*>(a.data) + row * a.cols) {}

  HWY_INLINE void Prefetch(size_t at) const {
    __builtin_prefetch(reinterpret_cast<const char*>(codes_) + at * kBits / 8);
  }

  HWY_INLINE void Block(size_t at, VF (&values)[kBlockVecs]) const {
    const DF d;
    const hn::Rebind<uint32_t, DF> d32;
    const hn::Rebind<uint16_t, DF> d16;
    for (size_t v = 0; v < kBlockVecs; ++v) {
      const auto codes = hn::PromoteTo(d32, hn::LoadU(d16, codes_ + at + v * kVecLanes));
      values[v] = hn::BitCast(d, hn::ShiftLeft<16>(codes));
    }
  }

 private:
  const uint16_t* codes_;
};

void Bf16Decode(const WeightMatrix& a, int64_t row, float* out) {
  DecodeInto(Bf16Row(a, row), 0, static_cast<size_t>(a.cols), out);
}

void Bf16MatMul(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                float* y, int64_t y_stride, float* scratch) {
  MatMulRows<Bf16Row>(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
HWY_EXPORT(Bf16MatMul);
HWY_EXPORT(Bf16Decode);

void MatMulBf16(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                float* y, int64_t y_stride, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Bf16MatMul)(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
}

void DecodeRowBf16(const WeightMatrix& a, int64_t row, float* out) {
  HWY_DYNAMIC_DISPATCH(Bf16Decode)(a, row, out);
}

}  // namespace millrace::kernels
#endif
