// Rows of attention.cc, decoded, and tiles of dot products with them. Included once per instruction set (no
// #pragma once).

#if defined(MILLRACE_KERNELS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_ATTENTION_INL_H_
#undef MILLRACE_KERNELS_ATTENTION_INL_H_
#else
#define MILLRACE_KERNELS_ATTENTION_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/codecs.h"
#include "kernels/attention.h"
#include "kernels/dot_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// Sixteen e4m3 codes as values times `scale`.
HWY_INLINE void DecodeE4m3(const uint8_t* HWY_RESTRICT codes, float scale, float* HWY_RESTRICT out) {
  for (size_t i = 0; i < kLanes; ++i) out[i] = E4m3ToFloat(codes[i]) * scale;
}

// Sixteen e2m1 codes in eight bytes, the even channel in the low nibble, as values times `scale`.
HWY_INLINE void DecodeE2m1(const uint8_t* HWY_RESTRICT codes, float scale, float* HWY_RESTRICT out) {
  for (size_t i = 0; i < kLanes; ++i)
    out[i] = E2m1ToFloat(i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4) * scale;
}

#else

HWY_INLINE void DecodeE4m3(const uint8_t* HWY_RESTRICT codes, float scale, float* HWY_RESTRICT out) {
  const DF d;
  const hn::Rebind<int8_t, DF> d8;
  const hn::Rebind<int16_t, DF> d16;
  const hn::Rebind<hwy::float16_t, DF> df16;
#pragma GCC unroll 4
  for (size_t at = 0; at < kLanes; at += kVecLanes) {
    // Seven places to the left, an e4m3 code is the float16 of its value / 256: the exponent's bias is 15
    // instead of 7 and subnormals stay subnormal. Only NaN needs care: adding one to its mantissa carries
    // into the exponent's top bit, which is then set there and nowhere else.
    const auto code = hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes) + at);
    const auto shifted = hn::ShiftLeft<7>(hn::PromoteTo(d16, code));
    const auto half = hn::And(shifted, hn::Set(d16, static_cast<int16_t>(0xBFFF)));
    const auto carry = hn::Add(half, hn::Set(d16, int16_t{0x0080}));
    const auto bits = hn::OrAnd(half, carry, hn::Set(d16, int16_t{0x4000}));
    const VF value = hn::Mul(hn::PromoteTo(d, hn::BitCast(df16, bits)), hn::Set(d, 256.0f));
    hn::StoreU(hn::Mul(value, hn::Set(d, scale)), d, out + at);
  }
}

// The eight bytes at `codes`, twice.
HWY_INLINE hn::Vec<hn::Full128<uint8_t> > LoadEight(const uint8_t* codes) {
  uint64_t bytes;
  std::memcpy(&bytes, codes, sizeof(bytes));
  return hn::BitCast(hn::Full128<uint8_t>(), hn::Set(hn::Full128<uint64_t>(), bytes));
}

HWY_INLINE void DecodeE2m1(const uint8_t* HWY_RESTRICT codes, float scale, float* HWY_RESTRICT out) {
  const DF d;
  const hn::Full128<uint8_t> d8;
  const auto pairs = LoadEight(codes);
#if HWY_TARGET == HWY_AVX3
  // One lookup in sixteen floats.
  alignas(64) static constexpr float kValues[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  alignas(64) static constexpr uint32_t kShifts[16] = {0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4};
  const hn::RebindToUnsigned<DF> du;
  const auto twice = hn::PromoteTo(du, hn::InterleaveLower(d8, pairs, pairs));
  const auto nibbles = hn::And(hn::Shr(twice, hn::Load(du, kShifts)), hn::Set(du, 15));
  const VF values = hn::TableLookupLanes(hn::Load(d, kValues), hn::IndicesFromVec(d, nibbles));
  hn::StoreU(hn::Mul(values, hn::Set(d, scale)), d, out);
#else
  // Values are those of bfloat16, whose bytes are looked up one by one.
  alignas(16) static constexpr uint8_t kLow[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                                   0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
  alignas(16) static constexpr uint8_t kHigh[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                                    0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
  const hn::Full128<uint16_t> d16;
  const auto mask = hn::Set(d8, 0x0F);
  const auto odd = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, pairs))), mask);
  const auto nibbles = hn::InterleaveLower(d8, hn::And(pairs, mask), odd);
  const auto low = hn::TableLookupBytes(hn::Load(d8, kLow), nibbles);
  const auto high = hn::TableLookupBytes(hn::Load(d8, kHigh), nibbles);
  alignas(16) uint16_t bf16[kLanes];
  hn::Store(hn::BitCast(d16, hn::InterleaveLower(d8, low, high)), d16, bf16);
  hn::Store(hn::BitCast(d16, hn::InterleaveUpper(d8, low, high)), d16, bf16 + 8);
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint16_t, DF> dh;
#pragma GCC unroll 4
  for (size_t at = 0; at < kLanes; at += kVecLanes) {
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::Load(dh, bf16 + at)));
    hn::StoreU(hn::Mul(hn::BitCast(d, bits), hn::Set(d, scale)), d, out + at);
  }
#endif
}

#endif

inline constexpr std::array<float, 256> kE4m3 = [] {
  std::array<float, 256> values{};
  for (size_t code = 0; code < 256; ++code) values[code] = E4m3ToFloat(static_cast<uint8_t>(code));
  return values;
}();

// Channels [begin, end) of row a, multiples of 32, into out[0 ..).
HWY_INLINE void DecodeRow(const AttentionRows& rows, int64_t head_dim, int64_t a, int64_t begin, int64_t end,
                          float* HWY_RESTRICT out) {
  if (a < rows.n_window) {
    const uint8_t* codes = rows.window_codes + a * head_dim;
    const uint8_t* scales = rows.window_scales + a * (head_dim / 32);
    for (int64_t d = begin; d < end; d += 32, out += 32) {
      const float scale = E8m0ToFloat(scales[d / 32]);
      DecodeE4m3(codes + d, scale, out);
      DecodeE4m3(codes + d + 16, scale, out + 16);
    }
  } else {
    const LatentRow& row = rows.selected[a - rows.n_window];
    for (int64_t d = begin; d < end; d += 16, out += 16)
      DecodeE2m1(row.codes + d / 2, kE4m3[row.scales[d / 16]], out);
  }
}

// out[t * kTileRows + r] = scale * the sixteen sums of token t and row r, added up as a tree: l and l + 8,
// then + 4, + 2, + 1.
template <size_t kTokens>
HWY_INLINE void ReduceTile(const TileSums<kTokens>& sums, float scale, float* HWY_RESTRICT out) {
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t r = 0; r < kTileRows; ++r) out[t * kTileRows + r] = ReduceLanes(sums[t][r]) * scale;
  }
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// Full tiles: the sums of several dot products are added up in one vector.

// [a's lower half + its upper half, then b's].
HWY_INLINE VF AddHalves(VF a, VF b) {
  const DF d;
  return hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
}

// In each block of four: [a0 + a2, a1 + a3, b0 + b2, b1 + b3].
HWY_INLINE VF AddPairs(VF a, VF b) {
  const DF d;
  const hn::Repartition<double, DF> d64;
  const auto a64 = hn::BitCast(d64, a);
  const auto b64 = hn::BitCast(d64, b);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a64, b64)),
                 hn::BitCast(d, hn::InterleaveUpper(d64, a64, b64)));
}

// In each block of four: [a0 + a1, b0 + b1, a2 + a3, b2 + b3].
HWY_INLINE VF AddNeighbours(VF a, VF b) {
  const DF d;
  return AddPairs(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
}
#endif

#if HWY_TARGET == HWY_AVX3
template <>
HWY_INLINE void ReduceTile<4>(const TileSums<4>& sums, float scale, float* HWY_RESTRICT out) {
  const DF d;
  VF rows[4];  // blocks of tokens 0, 2, 1, 3: four sums each
#pragma GCC unroll 4
  for (size_t r = 0; r < 4; ++r) {
    const VF t01 = AddHalves(sums[0][r][0], sums[1][r][0]);
    const VF t23 = AddHalves(sums[2][r][0], sums[3][r][0]);
    rows[r] = hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(t23), t01),
                      hn::OddEvenBlocks(t23, hn::SwapAdjacentBlocks(t01)));
  }
  const VF all = AddNeighbours(AddPairs(rows[0], rows[2]), AddPairs(rows[1], rows[3]));
  alignas(64) float lanes[16];
  hn::Store(hn::Mul(all, hn::Set(d, scale)), d, lanes);
  const auto copy = [&](size_t token, size_t block) {
    std::memcpy(out + 4 * token, lanes + 4 * block, 4 * sizeof(float));
  };
  copy(0, 0), copy(2, 1), copy(1, 2), copy(3, 3);
}
#elif HWY_TARGET == HWY_AVX2
template <>
HWY_INLINE void ReduceTile<3>(const TileSums<3>& sums, float scale, float* HWY_RESTRICT out) {
  const DF d;
  VF dots[6];
#pragma GCC unroll 6
  for (size_t i = 0; i < 6; ++i) dots[i] = hn::Add(sums[i / 2][i % 2][0], sums[i / 2][i % 2][1]);
  const VF four = AddPairs(AddHalves(dots[0], dots[2]), AddHalves(dots[1], dots[3]));
  const VF two = AddHalves(dots[4], dots[5]);
  // Blocks of dots 0, 4, 1, 4 and 2, 5, 3, 5.
  const VF all = AddNeighbours(four, AddPairs(two, two));
  alignas(32) float lanes[8];
  hn::Store(hn::Mul(all, hn::Set(d, scale)), d, lanes);
  const auto copy = [&](size_t dot, size_t lane) { out[dot] = lanes[lane]; };
  copy(0, 0), copy(1, 2), copy(2, 4), copy(3, 6), copy(4, 1), copy(5, 5);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
