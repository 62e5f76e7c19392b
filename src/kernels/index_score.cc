#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/index_score.cc"
#include "kernels/targets_int8_dot.h"
// After it: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/index_score.h"
#include "kernels/index_score_ref.h"

// The fallbacks without vectors lack the shuffles that tiles are made of.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "kernels/index_score-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

float Score(const IndexQuery& q, const uint8_t* codes, const uint8_t* scales) {
  const int64_t n_blocks = q.dim() / 32;
  const uint8_t largest = *std::max_element(scales, scales + n_blocks);
  constexpr int64_t kTile = IndexQuery::kTileHeads;
  float sum = 0;
  for (int64_t h = 0; h < q.n_heads(); ++h) {
    const int64_t tile = h / kTile * kTile;
    const int64_t lane = h % kTile;
    float dot = 0;
    for (int64_t b = 0; b < n_blocks; ++b) {
      int block = 0;
      for (int64_t i = 0; i < 32; ++i) {
        const int64_t quad = b * 8 + IndexQuery::PlaceOf(i) / 4;
        block += q.codes(tile)[(quad * kTile + lane) * 4 + IndexQuery::PlaceOf(i) % 4] *
                 ref::TwiceE2m1At(codes, b * 32 + i);
      }
      const float in_key_units = static_cast<float>(block) * ref::IndexBlockFactor(scales[b], largest);
      dot = std::fma(in_key_units, q.factors(tile)[b * kTile + lane], dot);
    }
    sum = std::fma(std::max(dot, 0.0f), q.weights(tile)[lane], sum);
  }
  return sum * E8m0ToFloat(largest);
}

void IndexScoresImpl(std::span<const IndexQuery> queries, std::span<const IndexKeys> keys, float* scores,
                     int64_t stride, std::byte*) {
  for (size_t i = 0; i < queries.size(); ++i) {
    const int64_t dim = queries[i].dim();
    float* out = scores + static_cast<int64_t>(i) * stride;
    for (const IndexKeys& run : keys) {
      for (int64_t j = 0; j < run.n; ++j)
        *out++ = Score(queries[i], run.codes + j * (dim / 2), run.scales + j * (dim / 32));
    }
  }
}

#else

void IndexScoresImpl(std::span<const IndexQuery> queries, std::span<const IndexKeys> keys, float* scores,
                     int64_t stride, std::byte* scratch) {
  const int64_t dim = queries.front().dim();
  bool wide_query = false;
  for (const IndexQuery& q : queries) {
    for (int64_t h = 0; h < q.n_heads(); h += IndexQuery::kTileHeads) wide_query |= q.wide(h);
  }
  auto* memory = reinterpret_cast<uint8_t*>(scratch);
  KeyTile tile(memory, static_cast<size_t>(dim));
  RowWalk walk(keys, dim, memory + KeyTile::BytesFor(static_cast<size_t>(dim)));
  for (float* at = scores; walk.rows().n > 0;) {
    const size_t n = walk.rows().n;
    tile.Load(walk.rows(), wide_query);
    walk.Advance();
    for (size_t i = 0; i < queries.size(); ++i)
      ScoreTile(queries[i], tile, n, walk.rows().codes, at + static_cast<int64_t>(i) * stride);
    at += n;
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/check.h"

namespace millrace::kernels {
HWY_EXPORT(IndexScoresImpl);

size_t IndexScoreScratchBytes(int64_t dim) {
  // Of the longest vectors: a tile of KeyTile, then the rows of RowWalk.
  constexpr int64_t kTileKeys = 48;
  const int64_t tile = 2 * dim + (dim / 32 + 1) * static_cast<int64_t>(sizeof(float));
  const int64_t row = dim / 2 + dim / 32;
  return static_cast<size_t>(kTileKeys * (tile + row));
}

void IndexScores(std::span<const IndexQuery> queries, std::span<const IndexKeys> keys, float* scores,
                 int64_t stride, std::span<std::byte> scratch) {
  if (queries.empty()) return;
  const int64_t dim = queries.front().dim();
  MILLRACE_CHECK(scratch.size() >= IndexScoreScratchBytes(dim), "index score scratch smaller than planned");
  HWY_DYNAMIC_DISPATCH(IndexScoresImpl)(queries, keys, scores, stride, scratch.data());
}

}  // namespace millrace::kernels
#endif
