#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/index_score.cc"
#include "kernels/targets.h"
// After targets.h: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/dot_tile-inl.h"
#include "kernels/index_score.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// Keys that stay in the nearest cache while all heads visit them.
inline constexpr int64_t kKeyBlock = 32;

void IndexScoresImpl(const float* q, const float* weights, int64_t n_heads, int64_t dim, const float* keys,
                     int64_t n_keys, float scale, float* scores) {
  const auto n = static_cast<size_t>(dim);
  std::fill(scores, scores + n_keys, 0.0f);
  for (int64_t j0 = 0; j0 < n_keys; j0 += kKeyBlock) {
    const auto n_block = static_cast<size_t>(std::min(kKeyBlock, n_keys - j0));
    float* block_scores = scores + j0;
    for (size_t h0 = 0; h0 < static_cast<size_t>(n_heads); h0 += kTileTokens) {
      const size_t heads = HWY_MIN(kTileTokens, static_cast<size_t>(n_heads) - h0);
      const float* query[kTileTokens];
      for (size_t h = 0; h < heads; ++h) query[h] = q + (h0 + h) * n;
      // DotBlock finishes a tile's heads in rising order for each key, which keeps the sum's order.
      DotBlock(keys + j0 * dim, n, n_block, query, heads, n, [&](size_t h, size_t j, float dot) {
        block_scores[j] += weights[h0 + h] * (std::max(dot, 0.0f) * scale);
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
HWY_EXPORT(IndexScoresImpl);

void IndexScores(const float* q, const float* weights, int64_t n_heads, int64_t dim, const float* keys,
                 int64_t n_keys, float scale, float* scores) {
  HWY_DYNAMIC_DISPATCH(IndexScoresImpl)(q, weights, n_heads, dim, keys, n_keys, scale, scores);
}

}  // namespace millrace::kernels
#endif
