#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_fp4.cc"
#include "kernels/targets.h"
// After targets.h: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <array>
#include <cstring>

#include "base/codecs.h"
#include "kernels/matmul-inl.h"
#include "kernels/matmul_formats.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

class Fp4BlockRow {
 public:
  using Elements = FloatElements;
  static constexpr size_t kBits = 4;
  static constexpr size_t kBlocksAtOnce = 1;
  static constexpr bool kIsFloats = false;
  Fp4BlockRow() = default;
  Fp4BlockRow(const WeightMatrix& a, int64_t row)
      : codes_(reinterpret_cast<const uint8_t*>(a.data) + row * (a.cols / 2)),
        scales_(reinterpret_cast<const uint8_t*>(a.scales) + row * (a.cols / 32)) {}

  HWY_INLINE void Prefetch(size_t at) const {
    __builtin_prefetch(reinterpret_cast<const char*>(codes_) + at * kBits / 8);
  }

  HWY_INLINE void Block(size_t at, VF (&values)[kBlockVecs]) const {
    const VF scale = hn::Set(DF(), kScales[scales_[at / 32]]);
    Values(codes_ + at / 2, values);
    for (VF& value : values) value = hn::Mul(value, scale);
  }

 private:
  static constexpr std::array<float, 256> kScales = [] {
    std::array<float, 256> scales{};
    for (size_t code = 0; code < 256; ++code) scales[code] = E8m0ToFloat(static_cast<uint8_t>(code));
    return scales;
  }();
  alignas(64) static constexpr float kValues[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

#if HWY_TARGET == HWY_SCALAR
  static void Values(const uint8_t* codes, VF (&values)[kBlockVecs]) {
    for (size_t i = 0; i < kBlock; ++i)
      values[i] = hn::Set(DF(), kValues[i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4]);
  }
#elif HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  using D32 = hn::Rebind<uint32_t, DF>;

  static HWY_INLINE hn::Vec<D32> EightCodes(const uint8_t* codes) {
    uint32_t word;
    std::memcpy(&word, codes, sizeof(word));
    return hn::Set(D32(), word);
  }

  // Four bytes are eight codes: the same four bytes in eight lanes, each shifted to its own code, which is
  // then looked up in one register of values.
  static HWY_INLINE void Values(const uint8_t* HWY_RESTRICT codes, VF (&values)[kBlockVecs]) {
    alignas(64) static constexpr uint32_t kShifts[16] = {0, 4, 8, 12, 16, 20, 24, 28,
                                                         0, 4, 8, 12, 16, 20, 24, 28};
    const DF d;
    const D32 d32;
    const hn::Rebind<int32_t, DF> di;
    const auto shifts = hn::Load(d32, kShifts);
    const VF table = hn::Load(d, kValues);
    for (size_t v = 0; v < kBlockVecs; ++v) {
      auto words = EightCodes(codes + v * kVecLanes / 2);
      if constexpr (kVecLanes == 16) {
        words = hn::IfThenElse(hn::FirstN(d32, 8), words, EightCodes(codes + v * kVecLanes / 2 + 4));
      }
      const auto shifted = words >> shifts;
      const auto index = hn::And(shifted, hn::Set(d32, static_cast<uint32_t>(HWY_MIN(kVecLanes, 16) - 1)));
      values[v] = hn::TableLookupLanes(table, hn::IndicesFromVec(d, hn::BitCast(di, index)));
      if constexpr (kVecLanes == 8) {
        // Eight lanes hold the magnitudes only.
        const auto sign = hn::And(hn::ShiftLeft<28>(shifted), hn::Set(d32, 0x80000000u));
        values[v] = hn::Or(values[v], hn::BitCast(d, sign));
      }
    }
  }
#else
  // Vectors too short for the table: the two bytes of each value as a bfloat16 are looked up instead.
  static HWY_INLINE void Values(const uint8_t* HWY_RESTRICT codes, VF (&values)[kBlockVecs]) {
    alignas(16) static constexpr uint8_t kHigh[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                                      0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
    alignas(16) static constexpr uint8_t kLow[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                                     0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
    const DF d;
    const hn::FixedTag<uint8_t, 16> d8;
    const hn::FixedTag<uint16_t, 8> d16;
    const hn::Rebind<uint32_t, DF> d32;
    const hn::Rebind<uint16_t, DF> d16_narrow;
    const auto pairs = hn::LoadU(d8, codes);
    const auto even = hn::And(pairs, hn::Set(d8, uint8_t{15}));
    const auto odd = hn::ShiftRight<4>(pairs);
    alignas(16) uint16_t bf16[kBlock];
    for (size_t half = 0; half < 2; ++half) {
      const auto index = half == 0 ? hn::InterleaveLower(even, odd) : hn::InterleaveUpper(d8, even, odd);
      const auto high = hn::TableLookupBytes(hn::Load(d8, kHigh), index);
      const auto low = hn::TableLookupBytes(hn::Load(d8, kLow), index);
      hn::Store(hn::BitCast(d16, hn::InterleaveLower(low, high)), d16, bf16 + half * 16);
      hn::Store(hn::BitCast(d16, hn::InterleaveUpper(d8, low, high)), d16, bf16 + half * 16 + 8);
    }
    for (size_t v = 0; v < kBlockVecs; ++v) {
      const auto bits = hn::PromoteTo(d32, hn::LoadU(d16_narrow, bf16 + v * kVecLanes));
      values[v] = hn::BitCast(d, hn::ShiftLeft<16>(bits));
    }
  }
#endif

  const uint8_t* codes_;
  const uint8_t* scales_;
};

void Fp4Row32Decode(const WeightMatrix& a, int64_t row, float* out) {
  DecodeInto(Fp4BlockRow(a, row), 0, static_cast<size_t>(a.cols), out);
}

void Fp4Row32MatMul(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                    float* y, int64_t y_stride, float* scratch) {
  MatMulRows<Fp4BlockRow>(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
HWY_EXPORT(Fp4Row32MatMul);
HWY_EXPORT(Fp4Row32Decode);

void MatMulFp4Row32(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                    float* y, int64_t y_stride, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Fp4Row32MatMul)(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
}

void DecodeRowFp4Row32(const WeightMatrix& a, int64_t row, float* out) {
  HWY_DYNAMIC_DISPATCH(Fp4Row32Decode)(a, row, out);
}

}  // namespace millrace::kernels
#endif
