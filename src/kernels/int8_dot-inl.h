// Products of decoded fp4 weights with 8-bit activations for matmul_int8.cc, where the instruction set
// multiplies bytes. Included once per instruction set (no #pragma once).

#if defined(MILLRACE_KERNELS_INT8_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_INT8_DOT_INL_H_
#undef MILLRACE_KERNELS_INT8_DOT_INL_H_
#else
#define MILLRACE_KERNELS_INT8_DOT_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/byte_vectors-inl.h"
#include "kernels/matmul_int8.h"

#if MILLRACE_HAVE_BYTE_DOT

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {
// The eight quads of a block whose codes start at byte `from` of a group: of its even channels, then of its
// odd ones.
HWY_INLINE const int8_t* QuadOf(const QuantizedGroup* group, size_t from, size_t n) {
  return (n < 4 ? group->even + 4 * n : group->odd + 4 * (n - 4)) + from;
}

#if HWY_TARGET == HWY_AVX3_DL

// Looks up both nibbles of every byte: weights[0] are the low ones, weights[1] the high ones. Table and
// weights as in kDoubledPlus12. The instruction takes six bits of each index: with four copies of the table
// those of the neighbouring nibble do not matter and need no mask.
HWY_INLINE void DecodeNibbles(VByte pairs, VByte (&weights)[2]) {
  const hn::Repartition<uint16_t, DByte> d16;
  const VByte table = hn::LoadDup128(DByte(), kDoubledPlus12);
  const VByte high = hn::BitCast(DByte(), hn::ShiftRight<4>(hn::BitCast(d16, pairs)));
  weights[0] = VByte{_mm512_permutexvar_epi8(pairs.raw, table.raw)};
  weights[1] = VByte{_mm512_permutexvar_epi8(high.raw, table.raw)};
}

// Products of a row's vector, a block in each 128 bits: four sums of eight.
using VRowProducts = VQuad;

// Of unsigned bytes u and signed bytes s, |u * s| at most 24 * 128.
HWY_INLINE VRowProducts RowProducts(const VByte (&u)[2], const VByte (&s)[2]) {
  return AddByteProducts(AddByteProducts(hn::Zero(DQuad()), u[0], s[0]), u[1], s[1]);
}

// The same 128 bits of lane r: start's plus all products of row r of four. Sums of eight fit into 16 bits.
HWY_INLINE VQuad SumFourRows(const VRowProducts (&rows)[4], VQuad start) {
  const VPair ones = hn::Set(DPair(), int16_t{1});
  const __m512 low = _mm512_castsi512_ps(_mm512_packs_epi32(rows[0].raw, rows[1].raw));
  const __m512 high = _mm512_castsi512_ps(_mm512_packs_epi32(rows[2].raw, rows[3].raw));
  const VPair first{_mm512_castps_si512(_mm512_shuffle_ps(low, high, 0x88))};
  const VPair second{_mm512_castps_si512(_mm512_shuffle_ps(low, high, 0xDD))};
  return AddPairProducts(AddPairProducts(start, first, ones), second, ones);
}

// sums[t][v] lane i += the sum over n < 8 of the products of the lane's four bytes of the vector at u[n][v]
// with quad n of x[t]. The chains of additions are interleaved, because each waits for its own; a quad,
// spread once, serves all kRowVecs vectors (the instruction's own broadcast from memory halves its rate).
template <size_t kTokens, size_t kRowVecs>
HWY_INLINE void AddQuadProducts(const uint8_t* HWY_RESTRICT u, const QuantizedGroup* const (&x)[kTokens],
                                size_t from, VQuad (&sums)[kTokens][kRowVecs]) {
#pragma GCC unroll 8
  for (size_t n = 0; n < 8; ++n) {
    VByte weights[kRowVecs];
#pragma GCC unroll 2
    for (size_t v = 0; v < kRowVecs; ++v)
      weights[v] = hn::Load(DByte(), u + (n * kRowVecs + v) * sizeof(VByte));
#pragma GCC unroll 8
    for (size_t t = 0; t < kTokens; ++t) {
      const VByte quad = BroadcastQuad(QuadOf(x[t], from, n));
#pragma GCC unroll 2
      for (size_t v = 0; v < kRowVecs; ++v) sums[t][v] = AddByteProducts(sums[t][v], weights[v], quad);
    }
  }
}

#else

// All as above.
HWY_INLINE void DecodeNibbles(VByte pairs, VByte (&weights)[2]) {
  const VByte table = hn::LoadDup128(DByte(), kDoubledPlus12);
  weights[0] = hn::TableLookupBytes(table, LowNibbles(pairs));
  weights[1] = hn::TableLookupBytes(table, HighNibbles(pairs));
}

// Eight sums of four.
using VRowProducts = VPair;

HWY_INLINE VRowProducts RowProducts(const VByte (&u)[2], const VByte (&s)[2]) {
  return hn::Add(PairProducts(u[0], s[0]), PairProducts(u[1], s[1]));
}

// 32-bit lanes 0 and 2 of a, then of b; kOdd: 1 and 3. In each 128 bits.
template <bool kOdd>
HWY_INLINE VPair EverySecond(VPair a, VPair b) {
#if HWY_TARGET == HWY_AVX2
  return VPair{_mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(a.raw), _mm256_castsi256_ps(b.raw), kOdd ? 0xDD : 0x88))};
#else
  return VPair{_mm512_castps_si512(
      _mm512_shuffle_ps(_mm512_castsi512_ps(a.raw), _mm512_castsi512_ps(b.raw), kOdd ? 0xDD : 0x88))};
#endif
}

HWY_INLINE VQuad SumFourRows(const VRowProducts (&rows)[4], VQuad start) {
  const VPair low = hn::Add(EverySecond<false>(rows[0], rows[1]), EverySecond<true>(rows[0], rows[1]));
  const VPair high = hn::Add(EverySecond<false>(rows[2], rows[3]), EverySecond<true>(rows[2], rows[3]));
  return hn::Add(hn::Add(start, SumPairs(EverySecond<false>(low, high))),
                 SumPairs(EverySecond<true>(low, high)));
}

// The same value, of which the compiler knows nothing: it would regroup sums of many terms so that all terms
// wait in registers that it does not have.
HWY_INLINE VPair InOrder(VPair sum) {
  asm("" : "+v"(sum.raw));
  return sum;
}

// Four pairs of products, at most 4 * 2 * 24 * 127, fit into 16 bits, so they are widened once.
template <size_t kTokens, size_t kRowVecs>
HWY_INLINE void AddQuadProducts(const uint8_t* HWY_RESTRICT u, const QuantizedGroup* const (&x)[kTokens],
                                size_t from, VQuad (&sums)[kTokens][kRowVecs]) {
#pragma GCC unroll 2
  for (size_t half = 0; half < 2; ++half) {
    VPair pairs[kTokens][kRowVecs];
#pragma GCC unroll 4
    for (size_t n = 4 * half; n < 4 * half + 4; ++n) {
      VByte weights[kRowVecs];
#pragma GCC unroll 2
      for (size_t v = 0; v < kRowVecs; ++v)
        weights[v] = hn::Load(DByte(), u + (n * kRowVecs + v) * sizeof(VByte));
#pragma GCC unroll 8
      for (size_t t = 0; t < kTokens; ++t) {
        const VByte quad = BroadcastQuad(QuadOf(x[t], from, n));
#pragma GCC unroll 2
        for (size_t v = 0; v < kRowVecs; ++v) {
          const VPair products = PairProducts(weights[v], quad);
          pairs[t][v] = n == 4 * half ? products : InOrder(hn::Add(pairs[t][v], products));
        }
      }
    }
#pragma GCC unroll 8
    for (size_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
      for (size_t v = 0; v < kRowVecs; ++v) sums[t][v] = hn::Add(sums[t][v], SumPairs(pairs[t][v]));
    }
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_HAVE_BYTE_DOT
#endif  // include guard per target
