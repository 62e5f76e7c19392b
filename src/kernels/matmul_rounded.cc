#include "kernels/matmul_rounded.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_rounded.cc"
#include "kernels/targets_int8_dot.h"
// After it: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/check.h"
#include "kernels/align.h"
#include "kernels/fp8_row-inl.h"
#include "kernels/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// Without an instruction for pairs, inputs are float32 again, columns 1, 3, .. 31 of each block before
// columns 0, 2, .. 30: the order of MatMul over that is the order of pairs.
using OddFirstRow = Fp8TileRow<Fp8Decoding::kOrdinary, Fp8Order::kOddFirst>;

// The nearest bfloat16s, as floats; see RoundInputs for what is too small or too large.
HWY_INLINE VF RoundToBf16(VF x) {
  const DF d;
  const hn::Rebind<uint32_t, DF> d32;
  const auto bits = hn::BitCast(d32, x);
  const auto last = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto up = hn::Add(hn::Add(bits, hn::Set(d32, 0x7FFFu)), last);
  const VF rounded = hn::BitCast(d, hn::And(up, hn::Set(d32, 0xFFFF0000u)));
  const VF magnitude = hn::Abs(x);
  const VF in_range = hn::IfThenElse(hn::Le(magnitude, hn::Set(d, 0x1p50f)), rounded,
                                     hn::Set(d, std::numeric_limits<float>::quiet_NaN()));
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x1p-60f)), hn::Zero(d), in_range);
}

HWY_INLINE void RoundBlock(const float* x, VF (&rounded)[kBlockVecs]) {
#pragma GCC unroll 4
  for (size_t v = 0; v < kBlockVecs; ++v) rounded[v] = RoundToBf16(hn::LoadU(DF(), x + v * kVecLanes));
}

void RoundOddFirst(const float* x, int64_t begin, int64_t end, float* out) {
  const DF d;
  for (int64_t at = begin; at < end; at += static_cast<int64_t>(kBlock)) {
    VF rounded[kBlockVecs];
    RoundBlock(x + at, rounded);
    for (size_t v = 0; v < kBlockVecs; v += 2) {
      float* const odd = out + at + v / 2 * kVecLanes;
#if HWY_TARGET == HWY_SCALAR
      hn::StoreU(rounded[v + 1], d, odd);
      hn::StoreU(rounded[v], d, odd + kLanes);
#else
      hn::StoreU(hn::ConcatOdd(d, rounded[v + 1], rounded[v]), d, odd);
      hn::StoreU(hn::ConcatEven(d, rounded[v + 1], rounded[v]), d, odd + kLanes);
#endif
    }
  }
}

#if HWY_TARGET == HWY_AVX3_DL

// An element is a pair of bfloat16 columns: the even one in the lower half.
struct Bf16Pairs {
  static constexpr size_t kColumns = 2;
  static constexpr size_t kDecodedTogether = 2;

  // sum + the pair's products, the odd column's first. Written out because Highway 1.0 compiles this set
  // without the option that the compiler's own intrinsic wants.
  static HWY_INLINE VF MulAdd(VF a, VF b, VF sum) {
    __m512 raw = sum.raw;
    asm("vdpbf16ps %2, %1, %0" : "+v"(raw) : "v"(a.raw), "v"(b.raw));
    return VF{raw};
  }

  // As FloatElements::Scale, of a block a vector. Exact, by the ranges of inputs and of scales; zeros and NaN
  // stay what they are.
  static HWY_INLINE bool Scale(const float* HWY_RESTRICT x, const float* HWY_RESTRICT scales, size_t n,
                               float* HWY_RESTRICT out) {
    for (size_t at = 0; at < n; at += kLanes) {
      const auto exponent =
          static_cast<int16_t>((std::bit_cast<uint32_t>(scales[at / kLanes]) >> 16) - 0x3F80);
      const __m512i pairs = _mm512_loadu_si512(x + at);
      const __m512i magnitude = _mm512_and_si512(pairs, _mm512_set1_epi16(0x7FFF));
      const __mmask32 scaled = _mm512_cmplt_epu16_mask(_mm512_sub_epi16(magnitude, _mm512_set1_epi16(1)),
                                                       _mm512_set1_epi16(0x7F7F));
      _mm512_storeu_si512(out + at, _mm512_mask_add_epi16(pairs, scaled, pairs, _mm512_set1_epi16(exponent)));
    }
    return true;
  }
};

template <bool kScaled>
class Bf16PairsRow {
 public:
  static constexpr bool kHasTileScales = kScaled;
  using Unscaled = Bf16PairsRow<false>;
  static void BlockScales(const WeightMatrix& a, int64_t row, float* scales) {
    OddFirstRow::BlockScales(a, row, scales);
  }

  using Elements = Bf16Pairs;
  static constexpr size_t kBits = 16;
  static constexpr size_t kBlocksAtOnce = 2;
  static constexpr bool kIsFloats = false;
  Bf16PairsRow() = default;
  Bf16PairsRow(const WeightMatrix& a, int64_t row)
      : codes_(reinterpret_cast<const int8_t*>(a.data) + row * a.cols),
        scales_(reinterpret_cast<const uint8_t*>(a.scales) + row / 32 * (a.cols / 32)) {}

  // To the second cache, as Fp8TileRow.
  HWY_INLINE void Prefetch(size_t at) const { __builtin_prefetch(codes_ + 2 * at, /*rw=*/0, /*locality=*/2); }

  // Without scales, 256ths of the values.
  HWY_INLINE void Block(size_t at, VF (&values)[2]) const {
    Values(_mm512_loadu_si512(codes_ + 2 * at), values);
    if constexpr (kScaled) {
      for (size_t b = 0; b < 2; ++b) values[b] = Scaled(values[b], scales_[at / kLanes + b]);
    }
  }
  HWY_INLINE void Block(size_t at, VF (&values)[1]) const {
    VF both[2];
    const __m256i block = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes_ + 2 * at));
    Values(_mm512_castsi256_si512(block), both);
    values[0] = kScaled ? Scaled(both[0], scales_[at / kLanes]) : both[0];
  }

 private:
  static HWY_INLINE void Values(__m512i codes, VF (&values)[2]) {
    __m512i words[2];
    Bf16Of256ths(BlocksApart(codes), words);
    for (size_t b = 0; b < 2; ++b) values[b] = VF{_mm512_castsi512_ps(words[b])};
  }
  // 256ths of values, which are never NaN, with their scale.
  static HWY_INLINE VF Scaled(VF value, uint8_t scale_code) {
    const __m512i pairs = _mm512_castps_si512(value.raw);
    const __m512i exponent = _mm512_set1_epi16(static_cast<int16_t>((scale_code - 127 + 8) * 128));
    const __mmask32 not_zero = _mm512_test_epi16_mask(pairs, _mm512_set1_epi16(0x7FFF));
    return VF{_mm512_castsi512_ps(_mm512_mask_add_epi16(pairs, not_zero, pairs, exponent))};
  }

  const int8_t* codes_;
  const uint8_t* scales_;
};

void RoundPairs(const float* x, int64_t begin, int64_t end, float* out) {
  // Of the 64 halves of two vectors.
  alignas(64) static constexpr std::array<uint16_t, 2 * kLanes> kUpperHalves = [] {
    std::array<uint16_t, 2 * kLanes> halves{};
    for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(2 * i + 1);
    return halves;
  }();
  const __m512i upper_halves = _mm512_load_si512(kUpperHalves.data());
  for (int64_t at = begin; at < end; at += static_cast<int64_t>(kBlock)) {
    VF rounded[kBlockVecs];
    RoundBlock(x + at, rounded);
    _mm512_storeu_si512(out + at / 2,
                        _mm512_permutex2var_epi16(_mm512_castps_si512(rounded[0].raw), upper_halves,
                                                  _mm512_castps_si512(rounded[1].raw)));
  }
}

// Whether the processor's instruction gives the bits of two fused multiply-adds, the odd column's first.
bool PairsAreAddedInOrder() {
  std::minstd_rand random(1);
  const auto draw = [&] {
    const auto word = static_cast<uint32_t>(random());
    return (word & 0x807F0000u) | (120 + (word >> 8) % 14) << 23;
  };
  for (int i = 0; i < 64; ++i) {
    alignas(64) std::array<std::array<uint32_t, 2 * kLanes>, 2> x{};
    alignas(64) std::array<std::array<uint32_t, kLanes>, 2> pairs{};
    for (size_t k = 0; k < 2; ++k) {
      for (uint32_t& bits : x[k]) bits = draw();
      for (size_t l = 0; l < kLanes; ++l) pairs[k][l] = x[k][2 * l + 1] | x[k][2 * l] >> 16;
    }
    alignas(64) std::array<float, kLanes> sums{};
    for (float& sum : sums) sum = std::bit_cast<float>(draw()) * (1 + 0x1p-12f);
    std::array<float, kLanes> expected = sums;
    for (size_t l = 0; l < kLanes; ++l) {
      for (const size_t c : {2 * l + 1, 2 * l})
        expected[l] = std::fma(std::bit_cast<float>(x[0][c]), std::bit_cast<float>(x[1][c]), expected[l]);
    }
    const auto load = [](const auto& lanes) HWY_ATTR { return VF{_mm512_load_ps(lanes.data())}; };
    _mm512_store_ps(sums.data(), Bf16Pairs::MulAdd(load(pairs[0]), load(pairs[1]), load(sums)).raw);
    if (sums != expected) return false;
  }
  return true;
}

bool SetHasBf16Pairs() {
  static const bool has = __builtin_cpu_supports("avx512bf16") && PairsAreAddedInOrder();
  return has;
}

#else

bool SetHasBf16Pairs() {
  return false;
}

#endif

void RoundInputsImpl(const float* x, int64_t begin, int64_t end, float* out, bool pairs) {
#if HWY_TARGET == HWY_AVX3_DL
  if (pairs) return RoundPairs(x, begin, end, out);
#endif
  (void)pairs;
  RoundOddFirst(x, begin, end, out);
}

void MatMulRoundedImpl(const WeightMatrix& a, int64_t row_begin, int64_t row_end, const RoundedRows& x,
                       int64_t n_tokens, float* y, int64_t y_stride, float* scratch, bool pairs) {
  const InputRows rows{.base = x.base, .stride = x.stride, .index = x.index};
#if HWY_TARGET == HWY_AVX3_DL
  if (pairs)
    return MatMulRows<Bf16PairsRow<true>>(a, row_begin, row_end, rows, n_tokens, y, y_stride, scratch);
#endif
  (void)pairs;
  MatMulRows<OddFirstRow>(a, row_begin, row_end, rows, n_tokens, y, y_stride, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
HWY_EXPORT(SetHasBf16Pairs);
HWY_EXPORT(RoundInputsImpl);
HWY_EXPORT(MatMulRoundedImpl);

namespace {

// As the chosen instruction set is Highway's, for the whole process.
std::atomic<bool> bf16_pairs_allowed{true};

}  // namespace

bool CanRoundInputs(const WeightMatrix& a) {
  constexpr uint8_t kSmallest = 77;  // 2^-50
  constexpr uint8_t kLargest = 177;
  if (a.format != WeightFormat::kFp8Tile32 || !a.ordinary) return false;
  const auto* scales = reinterpret_cast<const uint8_t*>(a.scales);
  return std::all_of(scales, scales + (a.rows + 31) / 32 * (a.cols / 32),
                     [](uint8_t code) { return code >= kSmallest && code <= kLargest; });
}

bool HasBf16Pairs() {
  return HWY_DYNAMIC_DISPATCH(SetHasBf16Pairs)();
}

bool UsesBf16Pairs() {
  return bf16_pairs_allowed.load(std::memory_order_relaxed) && HasBf16Pairs();
}

void AllowBf16Pairs(bool allowed) {
  bf16_pairs_allowed.store(allowed, std::memory_order_relaxed);
}

void RoundInputs(const float* x, int64_t begin, int64_t end, float* out) {
  MILLRACE_CHECK(begin % 32 == 0 && end % 32 == 0, "inputs are rounded in blocks of 32");
  HWY_DYNAMIC_DISPATCH(RoundInputsImpl)(x, begin, end, out, UsesBf16Pairs());
}

void MatMulRounded(const WeightMatrix& a, int64_t row_begin, int64_t row_end, const RoundedRows& x,
                   int64_t n_tokens, float* y, int64_t y_stride, std::span<float> scratch) {
  MILLRACE_CHECK(a.rounds_inputs, "not a matrix whose inputs may be rounded");
  MILLRACE_CHECK(row_begin >= 0 && row_begin <= row_end && row_end <= a.rows, "row range outside the matrix");
  MILLRACE_CHECK(scratch.size() >= MatMulScratchFloats(a.cols), "matmul scratch smaller than announced");
  if (n_tokens == 0) return;
  HWY_DYNAMIC_DISPATCH(MatMulRoundedImpl)
  (a, row_begin, row_end, x, n_tokens, y, y_stride, AlignToCacheLine(scratch.data()), UsesBf16Pairs());
}

}  // namespace millrace::kernels
#endif
