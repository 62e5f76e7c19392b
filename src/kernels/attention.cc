#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include "kernels/targets.h"
// After targets.h: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/attention-inl.h"
#include "kernels/attention.h"
#include "kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// Logits of rows a0 .. a0 + n - 1, decoded at `tile`, and `heads` heads from h0 on.
template <size_t kTokens>
HWY_INLINE void LogitTile(const AttentionQuery& query, const float* HWY_RESTRICT tile, int64_t a0, size_t n,
                          int64_t h0) {
  const auto dim = static_cast<size_t>(query.head_dim);
  const auto stride = AttentionStride(query.rows.n());
  const float* q[kTokens];
  for (size_t t = 0; t < kTokens; ++t) q[t] = query.q + static_cast<size_t>(h0) * dim + t * dim;
  for (size_t r0 = 0; r0 < n; r0 += kTileRows) {
    // A ragged last tile computes its last row again and drops it.
    const float* row[kTileRows];
    for (size_t r = 0; r < kTileRows; ++r) row[r] = tile + HWY_MIN(r0 + r, n - 1) * dim;
    TileSums<kTokens> sums;
    ZeroSums<kTokens>(sums);
    AddToSums<kTokens>(row, q, dim, sums);
    float dots[kTokens * kTileRows];
    ReduceTile<kTokens>(sums, query.scale, dots);
    float* out = query.weights + h0 * stride + a0 + static_cast<int64_t>(r0);
    const size_t rows = HWY_MIN(kTileRows, n - r0);
    if (rows == kTileRows) {
      for (size_t t = 0; t < kTokens; ++t, out += stride)
        std::memcpy(out, dots + t * kTileRows, kTileRows * sizeof(float));
    } else {
      for (size_t t = 0; t < kTokens; ++t, out += stride) std::copy_n(dots + t * kTileRows, rows, out);
    }
  }
}

void AttentionLogitsImpl(const AttentionQuery& query, int64_t begin, int64_t end, float* tile) {
  constexpr auto kHeads = static_cast<int64_t>(kTileTokens);
  for (int64_t a0 = begin; a0 < end; a0 += kLogitRows) {
    const int64_t n = std::min(kLogitRows, end - a0);
    for (int64_t r = 0; r < n; ++r)
      DecodeRow(query.rows, query.head_dim, a0 + r, 0, query.head_dim, tile + r * query.head_dim);
    const auto n_rows = static_cast<size_t>(n);
    int64_t h = 0;
    // No head alone if it can be helped: one does not fill the registers.
    for (; h + kHeads <= query.n_heads && query.n_heads - h != kHeads + 1; h += kHeads)
      LogitTile<kTileTokens>(query, tile, a0, n_rows, h);
    for (; h + 2 <= query.n_heads; h += 2) LogitTile<2>(query, tile, a0, n_rows, h);
    for (; h < query.n_heads; ++h) LogitTile<1>(query, tile, a0, n_rows, h);
  }
}

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

void AttentionWeightsImpl(const AttentionQuery& query, int64_t begin, int64_t end) {
  const int64_t n = query.rows.n();
  const int64_t stride = AttentionStride(n);
  for (int64_t h = begin; h < end; ++h) {
    float* logits = query.weights + h * stride;
    std::fill(logits + n, logits + stride, -std::numeric_limits<float>::infinity());
    query.denominators[h] = Exponentiate(logits, static_cast<size_t>(n), query.sinks[h]);
  }
}

// Heads and vectors of channels whose sums share the registers.
inline constexpr size_t kSumHeads = 4;
inline constexpr size_t kSumVecs = kVecs == 1 ? 4 : 2;

// Decoded rows [n, width], and the sums that they are added to: [heads, width] from head h0 on.
struct OutputTile {
  const float* rows;
  float* sums;
  size_t width;
  int64_t a0;  // the first row
  size_t n;
};

// Adds the rows of `tile` to kWidth vectors of channels, from d0 on, of kHeads heads, from h on.
template <size_t kHeads, size_t kWidth>
HWY_INLINE void AddRows(const AttentionQuery& query, const OutputTile& tile, int64_t h0, int64_t h,
                        size_t d0) {
  const DF d;
  const auto stride = static_cast<size_t>(AttentionStride(query.rows.n()));
  const float* HWY_RESTRICT weights = query.weights + static_cast<size_t>(h) * stride + tile.a0;
  float* HWY_RESTRICT sums = tile.sums + static_cast<size_t>(h - h0) * tile.width + d0;
  VF acc[kHeads][kWidth];
#pragma GCC unroll 8
  for (size_t i = 0; i < kHeads; ++i) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kWidth; ++v)
      acc[i][v] = tile.a0 == 0 ? hn::Zero(d) : hn::LoadU(d, sums + i * tile.width + v * kVecLanes);
  }
  const float* HWY_RESTRICT from = tile.rows + d0;
  for (size_t a = 0; a < tile.n; ++a, from += tile.width) {
    VF row[kWidth];
#pragma GCC unroll 4
    for (size_t v = 0; v < kWidth; ++v) row[v] = hn::LoadU(d, from + v * kVecLanes);
#pragma GCC unroll 8
    for (size_t i = 0; i < kHeads; ++i) {
      const VF weight = hn::Set(d, weights[i * stride + a]);
#pragma GCC unroll 4
      for (size_t v = 0; v < kWidth; ++v) acc[i][v] = Fma(weight, row[v], acc[i][v]);
    }
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kHeads; ++i) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kWidth; ++v) hn::StoreU(acc[i][v], d, sums + i * tile.width + v * kVecLanes);
  }
}

template <size_t kHeads>
HWY_INLINE void AddRowsOfHeads(const AttentionQuery& query, const OutputTile& tile, int64_t h0, int64_t h) {
  constexpr size_t kStep = kSumVecs * kVecLanes;
  size_t d0 = 0;
  for (; d0 + kStep <= tile.width; d0 += kStep) AddRows<kHeads, kSumVecs>(query, tile, h0, h, d0);
  for (; d0 < tile.width; d0 += kVecLanes) AddRows<kHeads, 1>(query, tile, h0, h, d0);
}

// Divides sums [heads, width] by the denominators, into channels from c0 on.
HWY_INLINE void StoreOutputs(const AttentionQuery& query, const float* HWY_RESTRICT sums, size_t width,
                             int64_t c0, int64_t head_begin, int64_t head_end) {
  const DF d;
  for (int64_t h = head_begin; h < head_end; ++h, sums += width) {
    const VF denominator = hn::Set(d, query.denominators[h]);
    float* out = query.out + h * query.head_dim + c0;
    for (size_t i = 0; i < width; i += kVecLanes)
      hn::StoreU(hn::Div(hn::LoadU(d, sums + i), denominator), d, out + i);
  }
}

void AttentionOutputsImpl(const AttentionQuery& query, int64_t begin, int64_t end, int64_t head_begin,
                          int64_t head_end, float* memory) {
  constexpr auto kHeads = static_cast<int64_t>(kSumHeads);
  float* rows = memory;
  float* sums = memory + kOutputRows * kOutputChannels;
  const int64_t n_rows = query.rows.n();
  for (int64_t c0 = begin; c0 < end; c0 += kOutputChannels) {
    const int64_t width = std::min(kOutputChannels, end - c0);
    if (n_rows == 0) std::fill_n(sums, (head_end - head_begin) * width, 0.0f);
    for (int64_t a0 = 0; a0 < n_rows; a0 += kOutputRows) {
      const int64_t n = std::min(kOutputRows, n_rows - a0);
      for (int64_t r = 0; r < n; ++r)
        DecodeRow(query.rows, query.head_dim, a0 + r, c0, c0 + width, rows + r * width);
      const OutputTile tile{.rows = rows,
                            .sums = sums,
                            .width = static_cast<size_t>(width),
                            .a0 = a0,
                            .n = static_cast<size_t>(n)};
      int64_t h = head_begin;
      for (; h + kHeads <= head_end; h += kHeads) AddRowsOfHeads<kSumHeads>(query, tile, head_begin, h);
      for (; h < head_end; ++h) AddRowsOfHeads<1>(query, tile, head_begin, h);
    }
    StoreOutputs(query, sums, static_cast<size_t>(width), c0, head_begin, head_end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/check.h"

namespace millrace::kernels {
HWY_EXPORT(AttentionLogitsImpl);
HWY_EXPORT(AttentionWeightsImpl);
HWY_EXPORT(AttentionOutputsImpl);

void AttentionLogits(const AttentionQuery& query, int64_t begin, int64_t end, std::span<float> tile) {
  MILLRACE_CHECK(query.head_dim % 32 == 0, "head_dim is checked when the layer plan is built");
  MILLRACE_CHECK(tile.size() >= AttentionTileFloats(query.n_heads, query.head_dim),
                 "attention tile smaller than planned");
  HWY_DYNAMIC_DISPATCH(AttentionLogitsImpl)(query, begin, end, tile.data());
}

void AttentionWeights(const AttentionQuery& query, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(AttentionWeightsImpl)(query, begin, end);
}

void AttentionOutputs(const AttentionQuery& query, int64_t begin, int64_t end, int64_t head_begin,
                      int64_t head_end, std::span<float> tile) {
  MILLRACE_CHECK(begin % 32 == 0 && end % 32 == 0, "outputs are cut between blocks of scales");
  MILLRACE_CHECK(tile.size() >= AttentionTileFloats(query.n_heads, query.head_dim),
                 "attention tile smaller than planned");
  HWY_DYNAMIC_DISPATCH(AttentionOutputsImpl)(query, begin, end, head_begin, head_end, tile.data());
}

void SparseAttention(const AttentionQuery& query, std::span<float> tile) {
  AttentionLogits(query, 0, query.rows.n(), tile);
  AttentionWeights(query, 0, query.n_heads);
  AttentionOutputs(query, 0, query.head_dim, 0, query.n_heads, tile);
}

}  // namespace millrace::kernels
#endif
