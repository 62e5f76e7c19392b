// MatMul over any weight format. Included once per instruction set by each format's source file.

#if defined(MILLRACE_KERNELS_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_MATMUL_INL_H_
#undef MILLRACE_KERNELS_MATMUL_INL_H_
#else
#define MILLRACE_KERNELS_MATMUL_INL_H_
#endif

#include <algorithm>

#include "kernels/dot_tile-inl.h"
#include "kernels/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// A format is a class Row, a view of one row of a matrix:
//   Row(const WeightMatrix& a, int64_t row);
//   void Block(size_t at, VF (&values)[kBlockVecs]) const;  // columns [at, at + 32) as floats, exactly
//   static constexpr bool kIsFloats;  // then const float* floats() const is the row itself
inline constexpr size_t kBlock = 32;
inline constexpr size_t kBlockVecs = kBlock / kVecLanes;

template <class Row>
HWY_INLINE void DecodeInto(const Row& row, size_t cols, float* HWY_RESTRICT out) {
  const DF d;
  for (size_t at = 0; at < cols; at += kBlock) {
    VF values[kBlockVecs];
    row.Block(at, values);
    for (size_t v = 0; v < kBlockVecs; ++v) hn::StoreU(values[v], d, out + at + v * kVecLanes);
  }
}

// DotTile whose rows are decoded in registers on the way: for so few tokens that every row is used once.
template <size_t kTokens, class Row>
HWY_INLINE void DecodeDotTile(const Row* HWY_RESTRICT rows, const float* const* HWY_RESTRICT x, size_t cols,
                              float* HWY_RESTRICT out) {
  const DF d;
  VF sums[kTokens][kTileRows][kVecs];
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t r = 0; r < kTileRows; ++r) {
      for (size_t v = 0; v < kVecs; ++v) sums[t][r][v] = hn::Zero(d);
    }
  }
  for (size_t at = 0; at < cols; at += kBlock) {
#pragma GCC unroll 4
    for (size_t r = 0; r < kTileRows; ++r) {
      VF values[kBlockVecs];
      rows[r].Block(at, values);
#pragma GCC unroll 4
      for (size_t v = 0; v < kBlockVecs; ++v) {
#pragma GCC unroll 4
        for (size_t t = 0; t < kTokens; ++t) {
          const VF xv = hn::LoadU(d, x[t] + at + v * kVecLanes);
          sums[t][r][v % kVecs] = Fma(values[v], xv, sums[t][r][v % kVecs]);
        }
      }
    }
  }
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t r = 0; r < kTileRows; ++r) out[t * kTileRows + r] = ReduceLanes(sums[t][r]);
  }
}

// DecodeDotTile for a number of tokens known only at run time, 1 .. kTileTokens.
template <class Row>
HWY_INLINE void DecodeDotTileN(size_t tokens, const Row* HWY_RESTRICT rows,
                               const float* const* HWY_RESTRICT x, size_t cols, float* HWY_RESTRICT out) {
  if (tokens == 1) return DecodeDotTile<1>(rows, x, cols, out);
  if (tokens == 2) return DecodeDotTile<2>(rows, x, cols, out);
  if (tokens == 3) return DecodeDotTile<3>(rows, x, cols, out);
  if constexpr (kTileTokens >= 4) return DecodeDotTile<4>(rows, x, cols, out);
}

// At most one tile of tokens: each row is decoded and used on the spot.
template <class Row>
HWY_INLINE void MatMulFewTokens(const WeightMatrix& a, int64_t row_begin, int64_t row_end,
                                const float* const* tokens, size_t n_tokens, float* y, int64_t y_stride) {
  for (int64_t first = row_begin; first < row_end; first += static_cast<int64_t>(kTileRows)) {
    Row rows[kTileRows];
    // A ragged last tile computes its last row again and drops it.
    for (size_t r = 0; r < kTileRows; ++r)
      rows[r] = Row(a, std::min(first + static_cast<int64_t>(r), row_end - 1));
    float out[kTileTokens * kTileRows];
    DecodeDotTileN(n_tokens, rows, tokens, static_cast<size_t>(a.cols), out);
    const size_t n_rows = HWY_MIN(kTileRows, static_cast<size_t>(row_end - first));
    for (size_t t = 0; t < n_tokens; ++t) {
      for (size_t r = 0; r < n_rows; ++r)
        y[static_cast<int64_t>(t) * y_stride + first + static_cast<int64_t>(r)] = out[t * kTileRows + r];
    }
  }
}

// Any number of tokens: a panel of rows is decoded once for all of them.
template <class Row>
HWY_INLINE void MatMulRows(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x,
                           int64_t n_tokens, float* y, int64_t y_stride, float* scratch) {
  const auto cols = static_cast<size_t>(a.cols);
  const float* tokens[kTileTokens];
  const auto point_at_tokens = [&](int64_t first, size_t n) {
    for (size_t t = 0; t < n; ++t) {
      const int64_t token = first + static_cast<int64_t>(t);
      tokens[t] = x.base + (x.index != nullptr ? x.index[token] : token) * x.stride;
    }
  };
  if (n_tokens <= static_cast<int64_t>(kTileTokens)) {
    point_at_tokens(0, static_cast<size_t>(n_tokens));
    return MatMulFewTokens<Row>(a, row_begin, row_end, tokens, static_cast<size_t>(n_tokens), y, y_stride);
  }
  for (int64_t panel = row_begin; panel < row_end; panel += kPanelRows) {
    const auto n_rows = static_cast<size_t>(std::min(kPanelRows, row_end - panel));
    const float* decoded = scratch;
    if constexpr (Row::kIsFloats) {
      decoded = Row(a, panel).floats();
    } else {
      for (size_t r = 0; r < n_rows; ++r)
        DecodeInto(Row(a, panel + static_cast<int64_t>(r)), cols, scratch + r * cols);
    }
    for (int64_t t0 = 0; t0 < n_tokens; t0 += static_cast<int64_t>(kTileTokens)) {
      const size_t n = HWY_MIN(kTileTokens, static_cast<size_t>(n_tokens - t0));
      point_at_tokens(t0, n);
      DotBlock(decoded, cols, n_rows, tokens, n, cols, [&](size_t t, size_t r, float value) {
        y[(t0 + static_cast<int64_t>(t)) * y_stride + panel + static_cast<int64_t>(r)] = value;
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
