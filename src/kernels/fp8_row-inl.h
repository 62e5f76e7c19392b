// The rows of fp8 matrices as matmul_row-inl.h wants them. Included once per instruction set by the source
// files of fp8 products.

#if defined(MILLRACE_KERNELS_FP8_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_FP8_ROW_INL_H_
#undef MILLRACE_KERNELS_FP8_ROW_INL_H_
#else
#define MILLRACE_KERNELS_FP8_ROW_INL_H_
#endif

#include <array>
#include <bit>

#include "base/codecs.h"
#include "kernels/matmul.h"
#include "kernels/matmul_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// Scales beyond this one would overflow when multiplied by 256.
inline constexpr uint8_t kLargestScaleTimes256 = 246;
inline constexpr std::array<float, 256> kScalesTimes256 = [] {
  std::array<float, 256> scales{};
  for (size_t code = 0; code <= kLargestScaleTimes256; ++code)
    scales[code] = E8m0ToFloat(static_cast<uint8_t>(code)) * 256.0f;
  return scales;
}();

#if HWY_TARGET == HWY_AVX3_DL
// Low and high bytes of the bfloat16s that are 256ths of the values of codes 0 .. 127.
template <int kShift>
inline constexpr std::array<uint8_t, 128> kBf16Bytes = [] {
  std::array<uint8_t, 128> bytes{};
  for (size_t code = 0; code < bytes.size(); ++code) {
    const float value = E4m3ToFloat(static_cast<uint8_t>(code)) * 0x1p-8f;
    bytes[code] = static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> kShift);
  }
  return bytes;
}();

// 256ths of the values of 64 codes as bfloat16: of each 128 bits, words[0] has the first eight, words[1] the
// last.
HWY_INLINE void Bf16Of256ths(__m512i codes, __m512i (&words)[2]) {
  const auto look_up = [&](const std::array<uint8_t, 128>& bytes) HWY_ATTR {
    return _mm512_permutex2var_epi8(_mm512_loadu_si512(bytes.data()), codes,
                                    _mm512_loadu_si512(bytes.data() + 64));
  };
  const __m512i low = look_up(kBf16Bytes<16>);
  // With the codes' signs: a | (b & c).
  const __m512i high =
      _mm512_ternarylogic_epi32(look_up(kBf16Bytes<24>), codes, _mm512_set1_epi8(-128), 0xF8);
  words[0] = _mm512_unpacklo_epi8(low, high);
  words[1] = _mm512_unpackhi_epi8(low, high);
}

// Two blocks of codes such that Bf16Of256ths leaves one in each of its vectors.
HWY_INLINE __m512i BlocksApart(__m512i codes) {
  return _mm512_permutexvar_epi64(_mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0), codes);
}
#endif

// How codes become values: kOrdinary in a matrix with neither NaN nor a scale that overflows when multiplied
// by 256 (WeightMatrix::ordinary); kUnscaled gives 256ths of an ordinary matrix's values without their
// scales.
enum class Fp8Decoding : uint8_t { kAny, kOrdinary, kUnscaled };

// In which order a block's values come: as columns 0 .. 31, or as columns 1, 3, .. 31 and then 0, 2, .. 30
// (matmul_rounded.h; not with kAny).
enum class Fp8Order : uint8_t { kRising, kOddFirst };

template <Fp8Decoding kDecoding, Fp8Order kOrder = Fp8Order::kRising>
class Fp8TileRow {
 public:
  static constexpr bool kHasTileScales = kDecoding == Fp8Decoding::kOrdinary;
  using Unscaled = Fp8TileRow<Fp8Decoding::kUnscaled, kOrder>;
  static void BlockScales(const WeightMatrix& a, int64_t row, float* scales) {
    const auto* codes = reinterpret_cast<const uint8_t*>(a.scales) + row / 32 * (a.cols / 32);
    for (int64_t b = 0; b < a.cols / 32; ++b) scales[b] = kScalesTimes256[codes[b]];
  }

  using Elements = FloatElements;
  static constexpr size_t kBits = 8;
  static constexpr size_t kBlocksAtOnce = HWY_TARGET == HWY_AVX3_DL ? 2 : 1;
  static constexpr bool kIsFloats = false;
  Fp8TileRow() = default;
  Fp8TileRow(const WeightMatrix& a, int64_t row)
      : codes_(reinterpret_cast<const int8_t*>(a.data) + row * a.cols),
        scales_(reinterpret_cast<const uint8_t*>(a.scales) + row / 32 * (a.cols / 32)) {}

  // To the second cache: scaled inputs fill the nearest one, and the rows of a tile often lie a multiple of 4
  // KB apart.
  HWY_INLINE void Prefetch(size_t at) const {
    __builtin_prefetch(reinterpret_cast<const char*>(codes_) + at * kBits / 8, /*rw=*/0, /*locality=*/2);
  }

  template <size_t kN>
  HWY_INLINE void Block(size_t at, VF (&values)[kN]) const {
    Decode256ths(codes_ + at, values);
    if constexpr (kDecoding == Fp8Decoding::kUnscaled) return;
#pragma GCC unroll 2
    for (size_t v = 0; v < kN; v += kBlockVecs) Scale(scales_[(at + v * kVecLanes) / kBlock], values + v);
  }

 private:
  // Makes 256ths of a block's values the values.
  static HWY_INLINE void Scale(uint8_t scale_code, VF* values) {
    const DF d;
    VF scale = hn::Set(d, kScalesTimes256[scale_code]);
    if constexpr (kDecoding == Fp8Decoding::kAny) {
      if (scale_code > kLargestScaleTimes256) {
#pragma GCC unroll 4
        for (size_t v = 0; v < kBlockVecs; ++v) values[v] = hn::Mul(values[v], hn::Set(d, 256.0f));
        scale = hn::Set(d, E8m0ToFloat(scale_code));
      }
    }
#pragma GCC unroll 4
    for (size_t v = 0; v < kBlockVecs; ++v) values[v] = hn::Mul(values[v], scale);
  }

#if HWY_TARGET == HWY_AVX3_DL
  // In which order bytes have to lie so that what follows leaves four vectors in order: within each 128 bits
  // bytes are interleaved, the first eight and the last, and then words that lie two apart drawn together.
  alignas(64) static constexpr std::array<uint8_t, 64> kByteOrder = [] {
    std::array<uint8_t, 64> order{};
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t vector = i % 16 / 8 * 2 + i % 2;
      order[i] = static_cast<uint8_t>(16 * vector + i / 16 * 4 + i % 8 / 2);
    }
    return order;
  }();

  // Two blocks at once, by looking both bytes of a value up. Conversion from float16 goes through the one or
  // two units that shuffle, which would take twice as long.
  static HWY_INLINE void Decode256ths(const int8_t* HWY_RESTRICT codes, VF (&values)[2 * kBlockVecs]) {
    __m512i words[2];
    if constexpr (kOrder == Fp8Order::kRising) {
      Bf16Of256ths(_mm512_permutexvar_epi8(_mm512_load_si512(kByteOrder.data()), _mm512_loadu_si512(codes)),
                   words);
    } else {
      Bf16Of256ths(BlocksApart(_mm512_loadu_si512(codes)), words);
    }
    const __m512i upper = _mm512_set1_epi32(-65536);
    constexpr size_t kLower = kOrder == Fp8Order::kRising ? 0 : 1;
    for (size_t i = 0; i < 2; ++i) {
      values[2 * i + kLower] = VF{_mm512_castsi512_ps(_mm512_slli_epi32(words[i], 16))};
      values[2 * i + 1 - kLower] = VF{_mm512_castsi512_ps(_mm512_and_si512(words[i], upper))};
    }
  }
#endif

  // A block of codes as value / 256, exactly.
  static HWY_INLINE void Decode256ths(const int8_t* HWY_RESTRICT codes, VF (&values)[kBlockVecs]) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    // Highway's emulation of float16 knows no NaN.
    for (size_t v = 0; v < kBlockVecs; ++v) {
      alignas(16) float lanes[kVecLanes];
      for (size_t l = 0; l < kVecLanes; ++l) {
        const size_t i = v * kVecLanes + l;
        const size_t column = kOrder == Fp8Order::kRising ? i : i < 16 ? 2 * i + 1 : 2 * (i - 16);
        lanes[l] = E4m3ToFloat(static_cast<uint8_t>(codes[column])) * 0x1p-8f;
      }
      values[v] = hn::Load(DF(), lanes);
    }
#else
    // Seven places to the left, an e4m3 code is the float16 of that value: the exponent's bias is 15 instead
    // of 7 and subnormals stay subnormal. Only NaN needs care: adding one to its mantissa carries into the
    // exponent's top bit, which is then set there and nowhere else.
    const DF d;
    const hn::Repartition<int16_t, DF> d16;
    const hn::Rebind<hwy::float16_t, DF> df16;
    const hn::Half<decltype(d16)> d16_half;
    const auto to_half = [&](auto shifted) HWY_ATTR {
      auto half = hn::And(shifted, hn::Set(d16, static_cast<int16_t>(0xBFFF)));
      if constexpr (kDecoding == Fp8Decoding::kAny) {
        const auto carry = hn::Add(half, hn::Set(d16, int16_t{0x0080}));
        half = hn::OrAnd(half, carry, hn::Set(d16, int16_t{0x4000}));
      }
      return half;
    };
    const auto widen = [&](auto half, VF& lower, VF& upper) HWY_ATTR {
      lower = hn::PromoteTo(d, hn::BitCast(df16, hn::LowerHalf(d16_half, half)));
      upper = hn::PromoteTo(d, hn::BitCast(df16, hn::UpperHalf(d16_half, half)));
    };
    if constexpr (kOrder == Fp8Order::kOddFirst) {
      DecodeOddFirst(codes, widen, values);
      return;
    }
#if HWY_TARGET == HWY_AVX2
    // Interleaving works within 128 bits, so each result has eight codes of either half of the block. Unlike
    // sign extension it does not have to go through the one unit that everything below goes through.
    const hn::Repartition<int8_t, DF> d8_block;
    const auto block = hn::LoadU(d8_block, codes);
    const auto even = hn::InterleaveLower(d8_block, hn::Zero(d8_block), block);
    const auto odd = hn::InterleaveUpper(d8_block, hn::Zero(d8_block), block);
    widen(to_half(hn::ShiftRight<1>(hn::BitCast(d16, even))), values[0], values[2]);
    widen(to_half(hn::ShiftRight<1>(hn::BitCast(d16, odd))), values[1], values[3]);
#else
    const hn::Rebind<int8_t, decltype(d16)> d8;
#pragma GCC unroll 2
    for (size_t v = 0; v < kBlockVecs; v += 2) {
      const auto extended = hn::PromoteTo(d16, hn::LoadU(d8, codes + v * kVecLanes));
      widen(to_half(hn::ShiftLeft<7>(extended)), values[v], values[v + 1]);
    }
#endif
#endif
  }

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  // Sixteen bits hold an even column's code and above it an odd one's.
  template <class Widen>
  static HWY_INLINE void DecodeOddFirst(const int8_t* HWY_RESTRICT codes, const Widen& widen,
                                        VF (&values)[kBlockVecs]) {
    static_assert(kDecoding != Fp8Decoding::kAny);
    const hn::CappedTag<int16_t, 16> d16;
    constexpr size_t kWords = HWY_MIN(16, HWY_LANES(int16_t));
    const auto mask = hn::Set(d16, static_cast<int16_t>(0xBF80));
#pragma GCC unroll 2
    for (size_t v = 0; v < kBlockVecs / 2; v += kWords / kVecLanes) {
      const auto pairs =
          hn::BitCast(d16, hn::LoadU(hn::Repartition<int8_t, decltype(d16)>(), codes + 2 * v * kVecLanes));
      const auto odd = hn::And(hn::ShiftRight<1>(pairs), mask);
      const auto even = hn::And(hn::ShiftRight<1>(hn::ShiftLeft<8>(pairs)), mask);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
      const hn::Rebind<hwy::float16_t, DF> df16;
      values[v] = hn::PromoteTo(DF(), hn::BitCast(df16, odd));
      values[v + kBlockVecs / 2] = hn::PromoteTo(DF(), hn::BitCast(df16, even));
#else
      widen(odd, values[v], values[v + 1]);
      widen(even, values[v + kBlockVecs / 2], values[v + kBlockVecs / 2 + 1]);
#endif
    }
  }
#endif

  const int8_t* codes_;
  const uint8_t* scales_;
};

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
