#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/residual_streams.cc"
#include "kernels/targets.h"
// After targets.h: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/hyper_connection.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Products and sums are rounded one by one, never fused, as on sets that have no fused multiply-add. Channels
// beyond the last whole vector take vectors of one.
template <class D>
HWY_INLINE void CollapseChannels(D d, const float* HWY_RESTRICT x, const float* HWY_RESTRICT pre,
                                 size_t streams, size_t hidden, size_t at, float* HWY_RESTRICT u) {
  auto sum = hn::Mul(hn::Set(d, pre[0]), hn::LoadU(d, x + at));
  for (size_t j = 1; j < streams; ++j)
    sum = hn::Add(sum, hn::Mul(hn::Set(d, pre[j]), hn::LoadU(d, x + j * hidden + at)));
  hn::StoreU(sum, d, u + at);
}

void CollapseStreamsImpl(const float* HWY_RESTRICT x, const float* HWY_RESTRICT pre, size_t streams,
                         size_t hidden, float* HWY_RESTRICT u) {
  const hn::ScalableTag<float> d;
  size_t at = 0;
  for (; at + hn::Lanes(d) <= hidden; at += hn::Lanes(d)) CollapseChannels(d, x, pre, streams, hidden, at, u);
  for (; at < hidden; ++at) CollapseChannels(hn::FixedTag<float, 1>(), x, pre, streams, hidden, at, u);
}

// kStreams is the number of streams, or 0 for any: only for a known number are the old streams of a vector of
// channels kept in registers while the new ones are formed.
template <size_t kStreams, class D>
HWY_INLINE void ExpandChannels(D d, const float* HWY_RESTRICT y, const float* HWY_RESTRICT post,
                               const float* HWY_RESTRICT comb, size_t streams, size_t hidden, size_t at,
                               float* HWY_RESTRICT x) {
  const size_t m = kStreams != 0 ? kStreams : streams;
  hn::Vec<D> old[kStreams != 0 ? kStreams : kMaxStreams];
#pragma GCC unroll 4
  for (size_t j = 0; j < m; ++j) old[j] = hn::LoadU(d, x + j * hidden + at);
  const auto value = hn::LoadU(d, y + at);
#pragma GCC unroll 4
  for (size_t k = 0; k < m; ++k) {
    auto sum = hn::Mul(hn::Set(d, post[k]), value);
#pragma GCC unroll 4
    for (size_t j = 0; j < m; ++j) sum = hn::Add(sum, hn::Mul(hn::Set(d, comb[j * m + k]), old[j]));
    hn::StoreU(sum, d, x + k * hidden + at);
  }
}

template <size_t kStreams>
HWY_INLINE void ExpandAll(const float* y, const float* post, const float* comb, size_t streams, size_t hidden,
                          float* x) {
  const hn::ScalableTag<float> d;
  size_t at = 0;
  for (; at + hn::Lanes(d) <= hidden; at += hn::Lanes(d))
    ExpandChannels<kStreams>(d, y, post, comb, streams, hidden, at, x);
  for (; at < hidden; ++at)
    ExpandChannels<kStreams>(hn::FixedTag<float, 1>(), y, post, comb, streams, hidden, at, x);
}

void ExpandStreamsImpl(const float* HWY_RESTRICT y, const float* HWY_RESTRICT post,
                       const float* HWY_RESTRICT comb, size_t streams, size_t hidden, float* HWY_RESTRICT x) {
  if (streams == 4) {  // the released model's
    ExpandAll<4>(y, post, comb, streams, hidden, x);
  } else {
    ExpandAll<0>(y, post, comb, streams, hidden, x);
  }
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
                   float* x) {
  MILLRACE_CHECK(streams >= 1 && streams <= kMaxStreams, "hc_mult is checked when the layer plan is built");
  HWY_DYNAMIC_DISPATCH(ExpandStreamsImpl)
  (y, post, comb, static_cast<size_t>(streams), static_cast<size_t>(hidden), x);
}

}  // namespace millrace::kernels
#endif
