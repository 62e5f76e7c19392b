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
