#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/stream_mix.cc"
#include "kernels/targets.h"
// After targets.h: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/hyper_connection.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Each product is rounded before it is added, on every instruction set: no multiply-adds here. Channels do
// not mix, so vectors may have any width.

template <class D>
HWY_INLINE void CollapseAt(D d, const float* x, const float* pre, size_t streams, size_t hidden, size_t at,
                           float* u) {
  auto sum = hn::Mul(hn::Set(d, pre[0]), hn::LoadU(d, x + at));
  for (size_t j = 1; j < streams; ++j)
    sum = hn::Add(sum, hn::Mul(hn::Set(d, pre[j]), hn::LoadU(d, x + j * hidden + at)));
  hn::StoreU(sum, d, u + at);
}

void CollapseStreamsImpl(const float* x, const float* pre, size_t streams, size_t hidden, float* u) {
  const hn::ScalableTag<float> d;
  size_t at = 0;
  for (; at + hn::Lanes(d) <= hidden; at += hn::Lanes(d)) CollapseAt(d, x, pre, streams, hidden, at, u);
  for (; at < hidden; ++at) CollapseAt(hn::CappedTag<float, 1>(), x, pre, streams, hidden, at, u);
}

// All new streams of a vector of channels, from the old ones in registers.
template <size_t kStreams, class D>
HWY_INLINE void ExpandAt(D d, const float* y, const float* post, const float* comb, size_t hidden, size_t at,
                         float* x) {
  const auto in = hn::LoadU(d, y + at);
  hn::Vec<D> old[kStreams];
#pragma GCC unroll 8
  for (size_t j = 0; j < kStreams; ++j) old[j] = hn::LoadU(d, x + j * hidden + at);
#pragma GCC unroll 8
  for (size_t k = 0; k < kStreams; ++k) {
    auto sum = hn::Mul(hn::Set(d, post[k]), in);
#pragma GCC unroll 8
    for (size_t j = 0; j < kStreams; ++j)
      sum = hn::Add(sum, hn::Mul(hn::Set(d, comb[j * kStreams + k]), old[j]));
    hn::StoreU(sum, d, x + k * hidden + at);
  }
}

template <size_t kStreams>
void ExpandRange(const float* HWY_RESTRICT y, const float* HWY_RESTRICT post, const float* HWY_RESTRICT comb,
                 size_t hidden, size_t begin, size_t end, float* HWY_RESTRICT x) {
  const hn::ScalableTag<float> d;
  size_t at = begin;
  for (; at + hn::Lanes(d) <= end; at += hn::Lanes(d)) ExpandAt<kStreams>(d, y, post, comb, hidden, at, x);
  for (; at < end; ++at) ExpandAt<kStreams>(hn::CappedTag<float, 1>(), y, post, comb, hidden, at, x);
}

void ExpandStreamsImpl(const float* y, const float* post, const float* comb, size_t streams, size_t hidden,
                       size_t begin, size_t end, float* x) {
  static_assert(kMaxStreams == 8);
  constexpr decltype(&ExpandRange<1>) kByStreams[] = {ExpandRange<1>, ExpandRange<2>, ExpandRange<3>,
                                                      ExpandRange<4>, ExpandRange<5>, ExpandRange<6>,
                                                      ExpandRange<7>, ExpandRange<8>};
  kByStreams[streams - 1](y, post, comb, hidden, begin, end, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/check.h"

namespace millrace::kernels {
HWY_EXPORT(CollapseStreamsImpl);
HWY_EXPORT(ExpandStreamsImpl);

void CollapseStreams(const float* x, const float* pre, int64_t streams, int64_t hidden, float* u) {
  HWY_DYNAMIC_DISPATCH(CollapseStreamsImpl)
  (x, pre, static_cast<size_t>(streams), static_cast<size_t>(hidden), u);
}

void ExpandStreams(const float* y, const float* post, const float* comb, int64_t streams, int64_t hidden,
                   int64_t begin, int64_t end, float* x) {
  MILLRACE_CHECK(streams >= 1 && streams <= kMaxStreams, "hc_mult is checked when the layer plan is built");
  MILLRACE_CHECK(begin >= 0 && begin <= end && end <= hidden, "channels outside the streams");
  HWY_DYNAMIC_DISPATCH(ExpandStreamsImpl)
  (y, post, comb, static_cast<size_t>(streams), static_cast<size_t>(hidden), static_cast<size_t>(begin),
   static_cast<size_t>(end), x);
}

}  // namespace millrace::kernels
#endif
