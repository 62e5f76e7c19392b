#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_fp8.cc"
#include "kernels/targets_int8_dot.h"
// After it: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/codecs.h"
#include "kernels/matmul-inl.h"
#include "kernels/matmul_formats.h"

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

// How codes become values: kOrdinary in a matrix with neither NaN nor a scale that overflows when multiplied
// by 256 (WeightMatrix::ordinary); kUnscaled gives 256ths of an ordinary matrix's values without their
// scales.
enum class Fp8Decoding : uint8_t { kAny, kOrdinary, kUnscaled };

template <Fp8Decoding kDecoding>
class Fp8TileRow {
 public:
  static constexpr bool kHasTileScales = kDecoding == Fp8Decoding::kOrdinary;
  using Unscaled = Fp8TileRow<Fp8Decoding::kUnscaled>;
  static void BlockScales(const WeightMatrix& a, int64_t row, float* scales) {
    const auto* codes = reinterpret_cast<const uint8_t*>(a.scales) + row / 32 * (a.cols / 32);
    for (int64_t b = 0; b < a.cols / 32; ++b) scales[b] = kScalesTimes256[codes[b]];
  }

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
  // Low and high bytes of the bfloat16s that are 256ths of the values of codes 0 .. 127.
  template <int kShift>
  static constexpr std::array<uint8_t, 128> kBytes = [] {
    std::array<uint8_t, 128> bytes{};
    for (size_t code = 0; code < bytes.size(); ++code) {
      const float value = E4m3ToFloat(static_cast<uint8_t>(code)) * 0x1p-8f;
      bytes[code] = static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> kShift);
    }
    return bytes;
  }();

  // In which order bytes have to lie so that what follows leaves four vectors of neighbours: within each 128
  // bits bytes are interleaved, the first eight and the last, and then words that lie two apart drawn
  // together.
  alignas(64) static constexpr std::array<uint8_t, 64> kOrder = [] {
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
    const __m512i ordered =
        _mm512_permutexvar_epi8(_mm512_load_si512(kOrder.data()), _mm512_loadu_si512(codes));
    const auto look_up = [&](const std::array<uint8_t, 128>& bytes) HWY_ATTR {
      return _mm512_permutex2var_epi8(_mm512_loadu_si512(bytes.data()), ordered,
                                      _mm512_loadu_si512(bytes.data() + 64));
    };
    const __m512i low = look_up(kBytes<16>);
    // With the codes' signs: a | (b & c).
    const __m512i high =
        _mm512_ternarylogic_epi32(look_up(kBytes<24>), ordered, _mm512_set1_epi8(-128), 0xF8);
    const __m512i words[2] = {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
    const __m512i upper = _mm512_set1_epi32(-65536);
    for (size_t i = 0; i < 2; ++i) {
      values[2 * i] = VF{_mm512_castsi512_ps(_mm512_slli_epi32(words[i], 16))};
      values[2 * i + 1] = VF{_mm512_castsi512_ps(_mm512_and_si512(words[i], upper))};
    }
  }
#endif

  // A block of codes as value / 256, exactly.
  static HWY_INLINE void Decode256ths(const int8_t* HWY_RESTRICT codes, VF (&values)[kBlockVecs]) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    // Highway's emulation of float16 knows no NaN.
    for (size_t v = 0; v < kBlockVecs; ++v) {
      alignas(16) float lanes[kVecLanes];
      for (size_t l = 0; l < kVecLanes; ++l)
        lanes[l] = E4m3ToFloat(static_cast<uint8_t>(codes[v * kVecLanes + l])) * 0x1p-8f;
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

  const int8_t* codes_;
  const uint8_t* scales_;
};

bool Fp8Tile32IsOrdinary(const WeightMatrix& a) {
  const auto* scales = reinterpret_cast<const uint8_t*>(a.scales);
  const int64_t n_scales = (a.rows + 31) / 32 * (a.cols / 32);
  if (std::any_of(scales, scales + n_scales, [](uint8_t code) { return code > kLargestScaleTimes256; }))
    return false;
  const hn::CappedTag<uint8_t, 32> d8;  // a.cols is a multiple of 32
  const auto magnitude = hn::Set(d8, uint8_t{0x7F});
  auto largest = hn::Zero(d8);
  const auto* codes = reinterpret_cast<const uint8_t*>(a.data);
  for (const uint8_t* end = codes + a.rows * a.cols; codes < end; codes += hn::Lanes(d8))
    largest = hn::Max(largest, hn::And(hn::LoadU(d8, codes), magnitude));
  return hn::AllFalse(d8, hn::Eq(largest, magnitude));
}

void Fp8Tile32Decode(const WeightMatrix& a, int64_t row, float* out) {
  DecodeInto(Fp8TileRow<Fp8Decoding::kAny>(a, row), 0, static_cast<size_t>(a.cols), out);
}

void Fp8Tile32MatMul(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                     float* y, int64_t y_stride, float* scratch) {
  if (a.ordinary) {
    MatMulRows<Fp8TileRow<Fp8Decoding::kOrdinary>>(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
  } else {
    MatMulRows<Fp8TileRow<Fp8Decoding::kAny>>(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
HWY_EXPORT(Fp8Tile32MatMul);
HWY_EXPORT(Fp8Tile32Decode);
HWY_EXPORT(Fp8Tile32IsOrdinary);

void MatMulFp8Tile32(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
                     float* y, int64_t y_stride, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Fp8Tile32MatMul)(a, row_begin, row_end, x, n_tokens, y, y_stride, scratch);
}

bool IsOrdinaryFp8Tile32(const WeightMatrix& a) {
  return HWY_DYNAMIC_DISPATCH(Fp8Tile32IsOrdinary)(a);
}

void DecodeRowFp8Tile32(const WeightMatrix& a, int64_t row, float* out) {
  HWY_DYNAMIC_DISPATCH(Fp8Tile32Decode)(a, row, out);
}

}  // namespace millrace::kernels
#endif
