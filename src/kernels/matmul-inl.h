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

// Columns [begin, end) of a row, from out[0].
template <class Row>
HWY_INLINE void DecodeInto(const Row& row, size_t begin, size_t end, float* HWY_RESTRICT out) {
  const DF d;
  for (size_t at = begin; at < end; at += kBlock) {
    VF values[kBlockVecs];
    row.Block(at, values);
    for (size_t v = 0; v < kBlockVecs; ++v) hn::StoreU(values[v], d, out + at - begin + v * kVecLanes);
  }
}

// DotTile whose rows are decoded in registers on the way: for so few tokens that every row is used once.
template <size_t kTokens, class Row>
HWY_INLINE void DecodeDotTile(const Row* HWY_RESTRICT rows, const float* const* HWY_RESTRICT x, size_t cols,
                              float* HWY_RESTRICT out) {
  const DF d;
  TileSums<kTokens> sums;
  ZeroSums<kTokens>(sums);
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

// Adds one tile's products over n columns to partial sums in memory: sums[t * kSumsPerToken + r * kLanes +
// l].
inline constexpr size_t kSumsPerToken = static_cast<size_t>(kStripRows) * kLanes;

template <size_t kTokens>
HWY_INLINE void AddTileInMemory(const float* const* HWY_RESTRICT w, const float* const* HWY_RESTRICT x,
                                size_t n, float* HWY_RESTRICT memory) {
  const DF d;
  TileSums<kTokens> sums;
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t r = 0; r < kTileRows; ++r) {
      for (size_t v = 0; v < kVecs; ++v)
        sums[t][r][v] = hn::LoadU(d, memory + t * kSumsPerToken + r * kLanes + v * kVecLanes);
    }
  }
  AddToSums<kTokens>(w, x, n, sums);
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t r = 0; r < kTileRows; ++r) {
      for (size_t v = 0; v < kVecs; ++v)
        hn::StoreU(sums[t][r][v], d, memory + t * kSumsPerToken + r * kLanes + v * kVecLanes);
    }
  }
}

// AddTileInMemory for a number of tokens known only at run time, 1 .. kTileTokens.
HWY_INLINE void AddTileInMemoryN(size_t tokens, const float* const* HWY_RESTRICT w,
                                 const float* const* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT memory) {
  if (tokens == 1) return AddTileInMemory<1>(w, x, n, memory);
  if (tokens == 2) return AddTileInMemory<2>(w, x, n, memory);
  if (tokens == 3) return AddTileInMemory<3>(w, x, n, memory);
  if constexpr (kTileTokens >= 4) return AddTileInMemory<4>(w, x, n, memory);
}

// A strip of rows times a block of tokens: y[t * y_stride + r]. Each chunk of columns is decoded once and,
// while it is in the cache, multiplied with all tokens; the partial sums wait in memory between chunks,
// unrounded.
template <class Row>
HWY_INLINE void MatMulStrip(const WeightMatrix& a, int64_t first_row, size_t n_rows,
                            const float* const* tokens, size_t n_tokens, float* y, int64_t y_stride,
                            float* scratch) {
  const auto cols = static_cast<size_t>(a.cols);
  float* sums = scratch;
  float* decoded = scratch + kTokenBlock * kSumsPerToken;
  std::fill(sums, sums + n_tokens * kSumsPerToken, 0.0f);
  for (size_t c0 = 0; c0 < cols; c0 += kChunkCols) {
    const size_t n = HWY_MIN(kChunkCols, cols - c0);
    const float* rows[kStripRows];
    for (size_t r = 0; r < n_rows; ++r) {
      const Row row(a, first_row + static_cast<int64_t>(r));
      if constexpr (Row::kIsFloats) {
        rows[r] = row.floats() + c0;
      } else {
        DecodeInto(row, c0, c0 + n, decoded + r * n);
        rows[r] = decoded + r * n;
      }
    }
    // A ragged last tile computes its last row again, into sums that nobody reads.
    for (size_t r = n_rows; r % kTileRows != 0; ++r) rows[r] = rows[n_rows - 1];
    for (size_t t = 0; t < n_tokens; t += kTileTokens) {
      const size_t tile_tokens = HWY_MIN(kTileTokens, n_tokens - t);
      const float* x[kTileTokens];
      for (size_t i = 0; i < tile_tokens; ++i) x[i] = tokens[t + i] + c0;
      for (size_t r = 0; r < n_rows; r += kTileRows)
        AddTileInMemoryN(tile_tokens, rows + r, x, n, sums + t * kSumsPerToken + r * kLanes);
    }
  }
  for (size_t t = 0; t < n_tokens; ++t) {
    for (size_t r = 0; r < n_rows; ++r) {
      VF lanes[kVecs];
      for (size_t v = 0; v < kVecs; ++v)
        lanes[v] = hn::LoadU(DF(), sums + t * kSumsPerToken + r * kLanes + v * kVecLanes);
      y[static_cast<int64_t>(t) * y_stride + static_cast<int64_t>(r)] = ReduceLanes(lanes);
    }
  }
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
    if (n <= kTileTokens) {
      MatMulFewTokens<Row>(a, row_begin, row_end, tokens, n, block_y, y_stride);
      continue;
    }
    for (int64_t row = row_begin; row < row_end; row += kStripRows) {
      const auto n_rows = static_cast<size_t>(std::min<int64_t>(kStripRows, row_end - row));
      MatMulStrip<Row>(a, row, n_rows, tokens, n, block_y + row, y_stride, scratch);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
