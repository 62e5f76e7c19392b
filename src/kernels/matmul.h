#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace::kernels {

// How a weight matrix lies in memory: the checkpoint's own layouts (shared/spec/v41-text.md, section 3.2).
enum class WeightFormat : uint8_t {
  kF32,
  kBf16,
  kFp8Tile32,  // e4m3 codes; one ue8m0 scale per 32 x 32 tile
  kFp4Row32,   // e2m1 codes, two a byte, even column in the low nibble; one ue8m0 scale per 32 columns of a
               // row
};

// A view of a matrix [rows, cols], row-major, applied as y[o] = sum_i A[o][i] * x[i].
struct WeightMatrix {
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 0;
  int64_t cols = 0;                 // logical; a multiple of 32
  const std::byte* data = nullptr;  // aligned to the element (4 for f32, 2 for bf16)
  const std::byte* scales = nullptr;
  // Whether IsOrdinary(*this) is known to be true, which lets products be faster; they are the same either
  // way.
  bool ordinary = false;
  // Whether CanRoundInputs(*this) is known to be true, which MatMulRounded wants.
  bool rounds_inputs = false;
};

// Reads the whole matrix: whether no code of it is NaN and no scale of fp8 tiles is above 2^119. Formats
// without such exceptions are ordinary.
bool IsOrdinary(const WeightMatrix& a);

// Input vectors: vector t starts at base + (index ? index[t] : t) * stride.
struct InputRows {
  const float* base = nullptr;
  int64_t stride = 0;
  const int32_t* index = nullptr;
};

// How a product is cut into pieces that stay in the caches. None of it shows in the results.
//   A strip's chunk (kStripRows x kChunkCols floats) is decoded together and fills a third of the nearest
//   cache. A band of strips shares each chunk of kTokenBlock input vectors, and its partial sums, while they
//   are in the second cache.
inline constexpr int64_t kStripRows = 8;
inline constexpr size_t kChunkCols = 512;
inline constexpr int64_t kBandRows = 64;
inline constexpr int64_t kTokenBlock = 64;

// Rows that one task takes well when n_threads share a product: a band where each row has work for many
// tokens; else multiples of a scale tile's height, more of them the more rows there are for each thread,
// because a task's first rows come from memory unforeseen; fewer of a matrix that has too few rows for
// several threads (a hyper-connection's 24).
constexpr int64_t TaskRows(int64_t rows, int64_t n_tokens, int64_t n_threads) {
  if (rows < 4 * kBandRows) return kStripRows;
  if (n_tokens > 8) return kBandRows;
  const int64_t share = rows / (8 * n_threads) / 32 * 32;
  return share < 32 ? 32 : share < 256 ? share : 256;
}

// Floats of scratch that MatMul needs for matrices of up to `max_cols` columns, with room to start on a cache
// line: one strip's chunk and the sixteen partial sums of each row of a band for each token of a block, whose
// tokens come in tiles of up to six, or four scaled inputs and the scales of a tile row.
constexpr size_t MatMulScratchFloats(int64_t max_cols) {
  const auto cols = static_cast<size_t>(max_cols);
  const size_t band =
      static_cast<size_t>(kStripRows) * kChunkCols + static_cast<size_t>(kBandRows * 16 * (kTokenBlock + 5));
  return (5 * cols > band ? 5 * cols : band) + 16;
}

// y[t * y_stride + o] = A[o] . x[t] for t in [0, n_tokens), o in [row_begin, row_end).
//
// The order of accumulation is part of the contract: element i of a dot product is added with one fused
// multiply-add to partial sum i mod 16, in rising i, and the sixteen partial sums are added as a tree (l and
// l + 8, then + 4, + 2, + 1). It does not depend on the number of tokens, the row range, or the width of the
// vectors, so a token's results are bit-identical in every batch. Rows are decoded exactly to float32.
//
// `scratch` holds at least MatMulScratchFloats(A.cols) floats, private to the calling thread. Any element
// alignment is right; inputs whose vectors start on a cache line are read fastest.
void MatMul(const WeightMatrix& a, int64_t row_begin, int64_t row_end, InputRows x, int64_t n_tokens,
            float* y, int64_t y_stride, std::span<float> scratch);

// out[0 .. cols) = row `row` of `a`, decoded to float32.
void DecodeRow(const WeightMatrix& a, int64_t row, float* out);

// The dot product of two float vectors in MatMul's order; n is a multiple of 16.
float Dot(const float* a, const float* b, size_t n);

// The sum of squares in the same order.
float SumOfSquares(const float* a, size_t n);

}  // namespace millrace::kernels
