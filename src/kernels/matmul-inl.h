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
#include "kernels/matmul_band-inl.h"
#include "kernels/matmul_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// What is asked for ahead of a row's columns in use: far enough for memory, near enough for several rows to
// find room in the nearest cache.
inline constexpr size_t kBytesAhead = 2048;

// Adds the products of kBlocks blocks of elements from `at` on.
template <size_t kBlocks, size_t kRows, size_t kTokens, class Row>
HWY_INLINE void AddDecoded(const Row* HWY_RESTRICT rows, const float* const* HWY_RESTRICT x, size_t at,
                           TileSums<kTokens, kRows>& sums) {
  // Rows share an input in a register where there are enough of those, else each row is used up at once.
  constexpr size_t kValues = kBlocks * kBlockOf<Row> / kVecLanes;
  constexpr size_t kRowsAtOnce = kVecs == 1 ? HWY_MIN(kRows, 8 / kValues) : 1;
#pragma GCC unroll 8
  for (size_t r0 = 0; r0 < kRows; r0 += kRowsAtOnce) {
    VF values[kRowsAtOnce][kValues];
#pragma GCC unroll 8
    for (size_t r = 0; r < kRowsAtOnce; ++r) rows[r0 + r].Block(at, values[r]);
#pragma GCC unroll 4
    for (size_t v = 0; v < kValues; ++v) {
#pragma GCC unroll 8
      for (size_t t = 0; t < kTokens; ++t) {
        const VF xv = hn::LoadU(DF(), x[t] + at + v * kVecLanes);
#pragma GCC unroll 8
        for (size_t r = 0; r < kRowsAtOnce; ++r)
          sums[t][r0 + r][v % kVecs] = Row::Elements::MulAdd(values[r][v], xv, sums[t][r0 + r][v % kVecs]);
      }
    }
  }
}

// out[t * kRows + r] = rows[r] . x[t], each row decoded in registers on the way. Afterwards come the rows
// `next` elements further on.
template <size_t kRows, size_t kTokens, class Row>
HWY_INLINE void DecodeDotTile(const Row* HWY_RESTRICT rows, const float* const* HWY_RESTRICT x, size_t n,
                              size_t next, float* HWY_RESTRICT out) {
  TileSums<kTokens, kRows> sums;
  ZeroSums<kTokens, kRows>(sums);
  constexpr size_t kStep = Row::kBlocksAtOnce * kBlockOf<Row>;
  constexpr size_t kPrefetchStep = 64 * 8 / Row::kBits;  // of a cache line
  const size_t ahead = HWY_MIN(kBytesAhead * 8 / Row::kBits, n);
  size_t at = 0;
  for (; at + kStep <= n; at += kStep) {
    if (at % kPrefetchStep == 0) {
      const size_t to = at + ahead < n ? at + ahead : at + ahead - n + next;
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t i = 0; i < kStep; i += kPrefetchStep) rows[r].Prefetch(to + i);
      }
    }
    AddDecoded<Row::kBlocksAtOnce, kRows, kTokens>(rows, x, at, sums);
  }
  if constexpr (Row::kBlocksAtOnce > 1) {
    if (at < n) AddDecoded<1, kRows, kTokens>(rows, x, at, sums);
  }
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t r = 0; r < kRows; ++r) out[t * kRows + r] = ReduceLanes(sums[t][r]);
  }
}

// Tokens for which rows are decoded in registers rather than into memory: so few that one tile holds them
// all.
inline constexpr size_t kFewTokens = 4;
// Rows that such a tile has room for.
constexpr size_t FewTokensRows(size_t tokens) {
  if (kVecs == 1) return 4;
  return tokens == 1 ? 4 : tokens <= 3 ? 2 : 1;
}

// y[t * y_stride + row] for rows [row_begin, row_end) and kTokens tokens. Each of a tile's kRows rows works
// through its own part of the range: the processor reads ahead of few long streams better than of short rows
// side by side.
template <size_t kTokens, class Row>
HWY_INLINE void MatMulFewTokens(const WeightMatrix& a, int64_t row_begin, int64_t row_end,
                                const float* const* tokens, float* y, int64_t y_stride) {
  constexpr auto kRows = static_cast<int64_t>(FewTokensRows(kTokens));
  const int64_t rows_a_part = (row_end - row_begin + kRows - 1) / kRows;
  const int64_t to_next_part = rows_a_part * (kRows - 1) + 1;  // from a part's last row to the next range's
  for (int64_t i = 0; i < rows_a_part; ++i) {
    Row rows[kRows];
    // Where the parts do not fill up, a row beyond the last stands for that one and is dropped.
    const auto row = [&](int64_t r) { return row_begin + r * rows_a_part + i; };
    for (int64_t r = 0; r < kRows; ++r) rows[r] = Row(a, std::min(row(r), row_end - 1));
    const size_t next = static_cast<size_t>(i + 1 < rows_a_part ? 1 : to_next_part) * ElementsOf<Row>(a);
    float out[kTokens * kRows];
    DecodeDotTile<kRows, kTokens>(rows, tokens, ElementsOf<Row>(a), next, out);
    for (int64_t r = 0; r < kRows && row(r) < row_end; ++r) {
      for (size_t t = 0; t < kTokens; ++t)
        y[static_cast<int64_t>(t) * y_stride + row(r)] = out[t * kRows + static_cast<size_t>(r)];
    }
  }
}

// For a format whose rows [32 i, 32 i + 32) share the scales of their blocks, which are powers of two:
// scaling the input instead of every weight gives the same products, to the bit, wherever that is exact. Such
// a Row has
//   static constexpr bool kHasTileScales = true;
//   using Unscaled = ...;  // a Row whose values lack their block's scale
//   static void BlockScales(const WeightMatrix& a, int64_t row, float* scales);  // [cols / 32] what they
//   lack
template <class Row>
concept HasTileScales = Row::kHasTileScales;

// MatMulFewTokens through scaled inputs, tile row by tile row; `scratch` has room for kTokens + 1 inputs.
template <size_t kTokens, class Row>
HWY_INLINE void MatMulScaledInputs(const WeightMatrix& a, int64_t row_begin, int64_t row_end,
                                   const float* const* tokens, float* y, int64_t y_stride, float* scratch) {
  const size_t n = ElementsOf<Row>(a);
  float* scales = scratch;
  for (int64_t row = row_begin, end; row < row_end; row = end) {
    end = std::min(row / 32 * 32 + 32, row_end);
    Row::BlockScales(a, row, scales);
    const float* scaled[kTokens];
    bool exact = true;
    for (size_t t = 0; t < kTokens; ++t) {
      float* out = scratch + (t + 1) * n;
      exact &= Row::Elements::Scale(tokens[t], scales, n, out);
      scaled[t] = out;
    }
    if (exact) {
      MatMulFewTokens<kTokens, typename Row::Unscaled>(a, row, end, scaled, y, y_stride);
    } else {
      MatMulFewTokens<kTokens, Row>(a, row, end, tokens, y, y_stride);
    }
  }
}

template <size_t kTokens, class Row>
HWY_INLINE void MatMulFew(const WeightMatrix& a, int64_t row_begin, int64_t row_end,
                          const float* const* tokens, float* y, int64_t y_stride, float* scratch) {
  if constexpr (HasTileScales<Row>) {
    MatMulScaledInputs<kTokens, Row>(a, row_begin, row_end, tokens, y, y_stride, scratch);
  } else {
    MatMulFewTokens<kTokens, Row>(a, row_begin, row_end, tokens, y, y_stride);
  }
}

// MatMulFew for a number of tokens known only at run time, 1 .. kFewTokens.
template <class Row>
HWY_INLINE void MatMulFewN(size_t n_tokens, const WeightMatrix& a, int64_t row_begin, int64_t row_end,
                           const float* const* tokens, float* y, int64_t y_stride, float* scratch) {
  if (n_tokens == 1) return MatMulFew<1, Row>(a, row_begin, row_end, tokens, y, y_stride, scratch);
  if (n_tokens == 2) return MatMulFew<2, Row>(a, row_begin, row_end, tokens, y, y_stride, scratch);
  if (n_tokens == 3) return MatMulFew<3, Row>(a, row_begin, row_end, tokens, y, y_stride, scratch);
  return MatMulFew<4, Row>(a, row_begin, row_end, tokens, y, y_stride, scratch);
}

template <class Row>
HWY_INLINE void MatMulRows(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x,
                           int64_t n_tokens, float* y, int64_t y_stride, float* scratch) {
  for (int64_t t0 = 0; t0 < n_tokens; t0 += kTokenBlock) {
    const auto n = static_cast<size_t>(std::min<int64_t>(kTokenBlock, n_tokens - t0));
    const float* tokens[kTokenBlock];
    for (size_t t = 0; t < n; ++t) {
      const int64_t token = t0 + static_cast<int64_t>(t);
      tokens[t] = x.base + (x.index != nullptr ? x.index[token] : token) * x.stride;
    }
    float* block_y = y + t0 * y_stride;
    if (n <= kFewTokens) {
      MatMulFewN<Row>(n, a, row_begin, row_end, tokens, block_y, y_stride, scratch);
      continue;
    }
    for (int64_t row = row_begin; row < row_end; row += kBandRows) {
      Band<Row>(a, row, std::min(kBandRows, row_end - row), tokens, n, block_y + row, y_stride, scratch)
          .Multiply();
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
