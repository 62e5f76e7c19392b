#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include "kernels/targets.h"
// After targets.h: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <algorithm>
#include <limits>

#include "kernels/attention.h"
#include "kernels/dot_tile-inl.h"
#include "kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// Heads that share one pass over the rows; their logits are scratch[h * stride + a].
inline constexpr size_t kHeads = kTileTokens;

// Replaces one head's logits by e^(l - mx) and returns the softmax denominator. The padding up to a multiple
// of sixteen holds minus infinity.
HWY_INLINE float Exponentiate(float* HWY_RESTRICT logits, size_t n, float sink) {
  const DF d;
  float mx = sink;
  for (size_t a = 0; a < n; ++a) mx = std::max(mx, logits[a]);
  VF sums[kVecs];
  for (size_t v = 0; v < kVecs; ++v) sums[v] = hn::Zero(d);
  for (size_t a = 0; a < n; a += kLanes) {
    for (size_t v = 0; v < kVecs; ++v) {
      float* at = logits + a + v * kVecLanes;
      const VF e = ExpNonPositive(hn::Sub(hn::LoadU(d, at), hn::Set(d, mx)));
      hn::StoreU(e, d, at);
      sums[v] = hn::Add(sums[v], e);
    }
  }
  const float sink_term = hn::GetLane(ExpNonPositive(hn::Set(d, sink - mx)));
  return ReduceLanes(sums) + sink_term;
}

// acc[h][v] += p_h[a] * rows[a][d0 + v * lanes ..] over all rows, for kHeads heads and kWidth vectors of
// channels.
template <size_t kWidth>
HWY_INLINE void AddWeightedRows(const float* HWY_RESTRICT rows, size_t n, size_t dim, size_t d0,
                                const float* HWY_RESTRICT p, size_t p_stride, VF (&acc)[kHeads][kWidth]) {
  const DF d;
  for (size_t a = 0; a < n; ++a) {
    VF row[kWidth];
#pragma GCC unroll 4
    for (size_t v = 0; v < kWidth; ++v) row[v] = hn::LoadU(d, rows + a * dim + d0 + v * kVecLanes);
#pragma GCC unroll 4
    for (size_t h = 0; h < kHeads; ++h) {
      const VF weight = hn::Set(d, p[h * p_stride + a]);
#pragma GCC unroll 4
      for (size_t v = 0; v < kWidth; ++v) acc[h][v] = Fma(weight, row[v], acc[h][v]);
    }
  }
}

template <size_t kWidth>
HWY_INLINE void WeightedChannels(const AttentionRows& kv, size_t dim, size_t d0, const float* p,
                                 size_t p_stride, const float* denominators, size_t heads, float* out) {
  const DF d;
  VF acc[kHeads][kWidth];
  for (size_t h = 0; h < kHeads; ++h) {
    for (size_t v = 0; v < kWidth; ++v) acc[h][v] = hn::Zero(d);
  }
  const auto n_window = static_cast<size_t>(kv.n_window);
  AddWeightedRows<kWidth>(kv.window, n_window, dim, d0, p, p_stride, acc);
  AddWeightedRows<kWidth>(kv.selected, static_cast<size_t>(kv.n_selected), dim, d0, p + n_window, p_stride,
                          acc);
  for (size_t h = 0; h < heads; ++h) {
    for (size_t v = 0; v < kWidth; ++v) {
      hn::StoreU(hn::Div(acc[h][v], hn::Set(d, denominators[h])), d, out + h * dim + d0 + v * kVecLanes);
    }
  }
}

void SparseAttentionImpl(const float* q, int64_t n_heads, int64_t head_dim, const AttentionRows& kv,
                         const float* sinks, float scale, float* out, float* scratch) {
  const auto dim = static_cast<size_t>(head_dim);
  const auto n_window = static_cast<size_t>(kv.n_window);
  const auto n_selected = static_cast<size_t>(kv.n_selected);
  const size_t n = n_window + n_selected;
  const size_t stride = (n + kLanes - 1) / kLanes * kLanes;
  constexpr size_t kChannelVecs = 4;
  for (size_t h0 = 0; h0 < static_cast<size_t>(n_heads); h0 += kHeads) {
    const size_t heads = HWY_MIN(kHeads, static_cast<size_t>(n_heads) - h0);
    const float* query[kHeads];
    float denominators[kHeads];
    for (size_t h = 0; h < heads; ++h) query[h] = q + (h0 + h) * dim;
    const auto store_at = [&](size_t first) HWY_ATTR {
      return [=](size_t h, size_t a, float dot) { scratch[h * stride + first + a] = dot * scale; };
    };
    if (n_window > 0) DotBlock(kv.window, dim, n_window, query, heads, dim, store_at(0));
    if (n_selected > 0) DotBlock(kv.selected, dim, n_selected, query, heads, dim, store_at(n_window));
    for (size_t h = 0; h < heads; ++h) {
      float* logits = scratch + h * stride;
      std::fill(logits + n, logits + stride, -std::numeric_limits<float>::infinity());
      denominators[h] = Exponentiate(logits, n, sinks[h0 + h]);
    }
    // A ragged last group computes with zero weights for the heads that do not exist.
    std::fill(scratch + heads * stride, scratch + kHeads * stride, 0.0f);
    size_t d0 = 0;
    float* group_out = out + h0 * dim;
    for (; d0 + kChannelVecs * kVecLanes <= dim; d0 += kChannelVecs * kVecLanes) {
      WeightedChannels<kChannelVecs>(kv, dim, d0, scratch, stride, denominators, heads, group_out);
    }
    for (; d0 < dim; d0 += kVecLanes) {
      WeightedChannels<1>(kv, dim, d0, scratch, stride, denominators, heads, group_out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/check.h"

namespace millrace::kernels {
HWY_EXPORT(SparseAttentionImpl);

void SparseAttention(const float* q, int64_t n_heads, int64_t head_dim, const AttentionRows& rows,
                     const float* sinks, float scale, float* out, std::span<float> scratch) {
  MILLRACE_CHECK(head_dim % 16 == 0, "head_dim is checked when the layer plan is built");
  MILLRACE_CHECK(scratch.size() >= AttentionScratchFloats(rows.n_window + rows.n_selected),
                 "attention scratch smaller than the rows of one query");
  HWY_DYNAMIC_DISPATCH(SparseAttentionImpl)(q, n_heads, head_dim, rows, sinks, scale, out, scratch.data());
}

}  // namespace millrace::kernels
#endif
