#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/peak_loops.cc"
#include "kernels/targets_int8_dot.h"
// After it: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/instruction_set.h"
#include "kernels/int8_dot-inl.h"
#include "kernels/matmul_rounded.h"
#include "kernels/peak_loops.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The compiler no longer knows what `v` holds, so it neither lifts work on it out of a loop nor drops work
// that leads to it.
template <class V>
HWY_INLINE void Forget(V& v) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  asm volatile("" : "+v"(v.raw));
#elif HWY_TARGET == HWY_NEON
  asm volatile("" : "+w"(v.raw));
#else
  asm volatile("" : "+m"(v));
#endif
}

uint64_t StreamReadImpl(const std::byte* data, size_t n) {
  const hn::ScalableTag<uint64_t> d;
  constexpr size_t kLineWords = 64 / sizeof(uint64_t);
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  const size_t stream_words = n / sizeof(uint64_t) / kReadStreams;
  hn::Vec<decltype(d)> sums[kReadStreams];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (size_t i = 0; i < stream_words; i += kLineWords) {
#pragma GCC unroll 8
    for (size_t s = 0; s < kReadStreams; ++s) {
      for (size_t w = 0; w < kLineWords; w += hn::Lanes(d))
        sums[s] = hn::Xor(sums[s], hn::Load(d, words + s * stream_words + i + w));
    }
  }
  for (size_t s = 1; s < kReadStreams; ++s) sums[0] = hn::Xor(sums[0], sums[s]);
  uint64_t out[HWY_LANES(uint64_t)];
  hn::StoreU(sums[0], d, out);
  uint64_t all = 0;
  for (const uint64_t word : out) all ^= word;
  return all;
}

// More sums than latency times units of any processor, fewer than registers.
inline constexpr size_t kPeakSums = 12;

double FloatPeakLoopImpl(int64_t rounds) {
  const hn::ScalableTag<float> d;
  auto x = hn::Set(d, 0.999f);
  hn::Vec<decltype(d)> sums[kPeakSums];
  for (auto& sum : sums) sum = hn::Zero(d);
  Forget(x);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = hn::MulAdd(x, x, sum);
  }
  for (auto& sum : sums) Forget(sum);
  return 2.0 * static_cast<double>(rounds) * kPeakSums * static_cast<double>(hn::Lanes(d));
}

#if HWY_TARGET == HWY_AVX3_DL
const char* Int8PeakSequenceImpl() {
  return "vpdpbusd";
}

double Int8PeakLoopImpl(int64_t rounds) {
  VByte u = hn::Set(DByte(), uint8_t{3});
  VByte s = hn::Set(DByte(), uint8_t{0xFE});
  VQuad sums[kPeakSums];
  for (auto& sum : sums) sum = hn::Zero(DQuad());
  Forget(u);
  Forget(s);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = AddByteProducts(sum, u, s);
  }
  for (auto& sum : sums) Forget(sum);
  return 2.0 * static_cast<double>(rounds) * kPeakSums * static_cast<double>(hn::Lanes(DByte()));
}

#elif MILLRACE_HAVE_BYTE_DOT
const char* Int8PeakSequenceImpl() {
  return "vpmaddubsw and 16-bit add, widened once in 8";
}

// Four outputs; into each go eight products, which fit into 16 bits for weights of 4 bits, and are then
// widened.
double Int8PeakLoopImpl(int64_t rounds) {
  constexpr size_t kOutputs = 4;
  constexpr size_t kNarrow = 8;
  VByte u = hn::Set(DByte(), uint8_t{3});
  VByte s = hn::Set(DByte(), uint8_t{0xFE});
  VQuad sums[kOutputs];
  for (auto& sum : sums) sum = hn::Zero(DQuad());
  for (int64_t i = 0; i < rounds; ++i) {
    VPair pairs[kOutputs];
#pragma GCC unroll 8
    for (size_t n = 0; n < kNarrow; ++n) {
#pragma GCC unroll 4
      for (size_t o = 0; o < kOutputs; ++o) {
        Forget(u);
        const VPair products = PairProducts(u, s);
        pairs[o] = n == 0 ? products : hn::Add(pairs[o], products);
      }
    }
#pragma GCC unroll 4
    for (size_t o = 0; o < kOutputs; ++o) sums[o] = hn::Add(sums[o], SumPairs(pairs[o]));
  }
  for (auto& sum : sums) Forget(sum);
  return 2.0 * static_cast<double>(rounds) * kOutputs * kNarrow * static_cast<double>(hn::Lanes(DByte()));
}

#else
const char* Int8PeakSequenceImpl() {
  return "16-bit multiply and add";
}

double Int8PeakLoopImpl(int64_t rounds) {
  const hn::ScalableTag<int16_t> d;
  auto x = hn::Set(d, int16_t{3});
  hn::Vec<decltype(d)> sums[kPeakSums];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      Forget(x);
      sum = hn::Add(sum, hn::Mul(x, x));
    }
  }
  for (auto& sum : sums) Forget(sum);
  return 2.0 * static_cast<double>(rounds) * kPeakSums * static_cast<double>(hn::Lanes(d));
}
#endif

const char* Int8InstructionSetImpl() {
  return hwy::TargetName(HWY_TARGET);
}

// Float kernels are not compiled for the set that only adds byte products.
const char* FloatInstructionSetImpl() {
  return hwy::TargetName(HWY_TARGET == HWY_AVX3_DL ? HWY_AVX3 : HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
HWY_EXPORT(StreamReadImpl);
HWY_EXPORT(FloatPeakLoopImpl);
HWY_EXPORT(Int8PeakLoopImpl);
HWY_EXPORT(Int8PeakSequenceImpl);
HWY_EXPORT(FloatInstructionSetImpl);
HWY_EXPORT(Int8InstructionSetImpl);

uint64_t StreamRead(const std::byte* data, size_t n) {
  return HWY_DYNAMIC_DISPATCH(StreamReadImpl)(data, n);
}

double FloatPeakLoop(int64_t rounds) {
  return HWY_DYNAMIC_DISPATCH(FloatPeakLoopImpl)(rounds);
}

double Int8PeakLoop(int64_t rounds) {
  return HWY_DYNAMIC_DISPATCH(Int8PeakLoopImpl)(rounds);
}

const char* Int8PeakSequence() {
  return HWY_DYNAMIC_DISPATCH(Int8PeakSequenceImpl)();
}

const char* FloatInstructionSet() {
  return HWY_DYNAMIC_DISPATCH(FloatInstructionSetImpl)();
}

const char* Int8InstructionSet() {
  return HWY_DYNAMIC_DISPATCH(Int8InstructionSetImpl)();
}

const char* Bf16InstructionSet() {
  return UsesBf16Pairs() ? kBf16InstructionSet.data() : Int8InstructionSet();
}

}  // namespace millrace::kernels
#endif
