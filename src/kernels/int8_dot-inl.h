// Integer dot products of unsigned by signed bytes, for which Highway 1.0 has no operation. Included once per
// instruction set (no #pragma once). MILLRACE_HAVE_BYTE_DOT says whether the set has them.

#if defined(MILLRACE_KERNELS_INT8_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_INT8_DOT_INL_H_
#undef MILLRACE_KERNELS_INT8_DOT_INL_H_
#else
#define MILLRACE_KERNELS_INT8_DOT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/matmul_int8.h"

#undef MILLRACE_HAVE_BYTE_DOT
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define MILLRACE_HAVE_BYTE_DOT 1
#else
#define MILLRACE_HAVE_BYTE_DOT 0
#endif

#if MILLRACE_HAVE_BYTE_DOT

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DByte = hn::ScalableTag<uint8_t>;
using DQuad = hn::ScalableTag<int32_t>;  // a lane for each four bytes
using VByte = hn::Vec<DByte>;
using VQuad = hn::Vec<DQuad>;
inline constexpr size_t kQuads = HWY_LANES(int32_t);

// The same four bytes in every lane.
HWY_INLINE VByte BroadcastQuad(const int8_t* bytes) {
  int32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return hn::BitCast(DByte(), hn::Set(DQuad(), word));
}

// The eight quads of a block whose codes start at byte `from` of a group: of its even channels, then of its
// odd ones.
HWY_INLINE const int8_t* QuadOf(const QuantizedGroup* group, size_t from, size_t n) {
  return (n < 4 ? group->even + 4 * n : group->odd + 4 * (n - 4)) + from;
}

#if HWY_TARGET == HWY_AVX3_DL

// sum + the four products of each lane. Written out because Highway 1.0 compiles this set without the option
// that the compiler's own intrinsic wants; every processor of the set has the instruction.
HWY_INLINE VQuad AddByteProducts(VQuad sum, VByte u, VByte s) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(u.raw), "v"(s.raw));
  return sum;
}

// Lane i is the sum over the two n and the four bytes of the lane of u[n] * s[n]; u unsigned and s signed
// bytes, |u * s| at most 24 * 127.
HWY_INLINE VQuad SumByteProducts(const VByte (&u)[2], const VByte (&s)[2]) {
  return AddByteProducts(AddByteProducts(hn::Zero(DQuad()), u[0], s[0]), u[1], s[1]);
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

using DPair = hn::ScalableTag<int16_t>;
using VPair = hn::Vec<DPair>;

HWY_INLINE VPair PairProducts(VByte u, VByte s) {
#if HWY_TARGET == HWY_AVX2
  return VPair{_mm256_maddubs_epi16(u.raw, s.raw)};
#else
  return VPair{_mm512_maddubs_epi16(u.raw, s.raw)};
#endif
}

HWY_INLINE VQuad SumPairs(VPair pairs) {
#if HWY_TARGET == HWY_AVX2
  return VQuad{_mm256_madd_epi16(pairs.raw, hn::Set(DPair(), int16_t{1}).raw)};
#else
  return VQuad{_mm512_madd_epi16(pairs.raw, hn::Set(DPair(), int16_t{1}).raw)};
#endif
}

// Both as above. Four pairs of products, at most 4 * 2 * 24 * 127, fit into 16 bits, so they are widened
// once.
HWY_INLINE VQuad SumByteProducts(const VByte (&u)[2], const VByte (&s)[2]) {
  return SumPairs(hn::Add(PairProducts(u[0], s[0]), PairProducts(u[1], s[1])));
}

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
          pairs[t][v] = n == 4 * half ? products : hn::Add(pairs[t][v], products);
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
