// Vectors of bytes and their integer products, for which Highway 1.0 has no operation. Included once per
// instruction set (no #pragma once). MILLRACE_HAVE_BYTE_DOT says whether the set multiplies bytes itself.

#if defined(MILLRACE_KERNELS_BYTE_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_BYTE_VECTORS_INL_H_
#undef MILLRACE_KERNELS_BYTE_VECTORS_INL_H_
#else
#define MILLRACE_KERNELS_BYTE_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#undef MILLRACE_HAVE_BYTE_DOT
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define MILLRACE_HAVE_BYTE_DOT 1
#else
#define MILLRACE_HAVE_BYTE_DOT 0
#endif

#if HWY_TARGET != HWY_SCALAR  // whose vectors hold one element of any size

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DByte = hn::ScalableTag<uint8_t>;
using DPair = hn::ScalableTag<int16_t>;
using DQuad = hn::ScalableTag<int32_t>;  // a lane for each four bytes
using VByte = hn::Vec<DByte>;
using VPair = hn::Vec<DPair>;
using VQuad = hn::Vec<DQuad>;
inline constexpr size_t kQuads = HWY_LANES(int32_t);

// A vector at any address. GCC would load it once more for each use as another type.
HWY_INLINE VByte LoadOnce(const uint8_t* bytes) {
  VByte v = hn::LoadU(DByte(), bytes);
#if HWY_ARCH_X86
  asm("" : "+v"(v.raw));
#endif
  return v;
}

// The same four bytes in every lane.
HWY_INLINE VByte BroadcastQuad(const int8_t* bytes) {
  int32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return hn::BitCast(DByte(), hn::Set(DQuad(), word));
}

HWY_INLINE VByte LowNibbles(VByte pairs) {
  return hn::And(pairs, hn::Set(DByte(), uint8_t{15}));
}
HWY_INLINE VByte HighNibbles(VByte pairs) {
  return hn::ShiftRight<4>(pairs);
}

// Twice the value of each e2m1 code, plus 12: what a table lookup makes of a nibble.
alignas(16) inline constexpr uint8_t kDoubledPlus12[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                           12, 11, 10, 9,  8,  6,  4,  0};

// out[d], 128 bits b, lane k = lane d of the same 128 bits of in[k].
HWY_INLINE void TransposeQuads(const VQuad (&in)[4], VQuad (&out)[4]) {
  const DQuad d;
  const hn::Repartition<int64_t, DQuad> d64;
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, in[0], in[1]));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, in[0], in[1]));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, in[2], in[3]));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, in[2], in[3]));
  out[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  out[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  out[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  out[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}

#if HWY_TARGET == HWY_AVX3_DL

// sum + the four products of each lane, of an unsigned byte of `u` with a signed one of `s`. Written out
// because Highway 1.0 compiles this set without the option that the compiler's own intrinsic wants; every
// processor of the set has the instruction.
HWY_INLINE VQuad AddByteProducts(VQuad sum, VByte u, VByte s) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(u.raw), "v"(s.raw));
  return sum;
}

// sum + the two products of each lane's 16-bit halves.
HWY_INLINE VQuad AddPairProducts(VQuad sum, VPair a, VPair b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}

#elif MILLRACE_HAVE_BYTE_DOT

// Each lane: the sum of two products of an unsigned byte of `u` with a signed one of `s`, which must fit.
HWY_INLINE VPair PairProducts(VByte u, VByte s) {
#if HWY_TARGET == HWY_AVX2
  return VPair{_mm256_maddubs_epi16(u.raw, s.raw)};
#else
  return VPair{_mm512_maddubs_epi16(u.raw, s.raw)};
#endif
}

// Each lane: the two products of 16-bit halves, added.
HWY_INLINE VQuad MulPairs(VPair a, VPair b) {
#if HWY_TARGET == HWY_AVX2
  return VQuad{_mm256_madd_epi16(a.raw, b.raw)};
#else
  return VQuad{_mm512_madd_epi16(a.raw, b.raw)};
#endif
}

HWY_INLINE VQuad SumPairs(VPair pairs) {
  return MulPairs(pairs, hn::Set(DPair(), int16_t{1}));
}

#else

// As above; `u` is at most 127.
HWY_INLINE VPair PairProducts(VByte u, VByte s) {
  const DPair d;
  const VPair even = hn::Mul(hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(d, u))),
                             hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(d, s))));
  return hn::Add(even, hn::Mul(hn::ShiftRight<8>(hn::BitCast(d, u)), hn::ShiftRight<8>(hn::BitCast(d, s))));
}

HWY_INLINE VQuad SumPairs(VPair pairs) {
  const VQuad both = hn::BitCast(DQuad(), pairs);
  return hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(both)), hn::ShiftRight<16>(both));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_SCALAR
#endif  // include guard per target
