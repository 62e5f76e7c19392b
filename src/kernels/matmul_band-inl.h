// MatMul for more than a few tokens: a band of rows times a block of tokens. Included once per instruction
// set by matmul-inl.h.

#if defined(MILLRACE_KERNELS_MATMUL_BAND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_MATMUL_BAND_INL_H_
#undef MILLRACE_KERNELS_MATMUL_BAND_INL_H_
#else
#define MILLRACE_KERNELS_MATMUL_BAND_INL_H_
#endif

#include <algorithm>

#include "kernels/dot_tile-inl.h"
#include "kernels/matmul.h"
#include "kernels/matmul_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// A tile is kBandTileRows rows times up to kBandTileTokens tokens, one vector of their sixteen partial sums
// at a time: as many sums as the registers hold, so that what is loaded serves many multiply-adds (7 loads
// for 12 with sixteen registers, 10 for 24 with thirty-two).
inline constexpr size_t kBandTileRows = 4;
inline constexpr size_t kBandTileTokens = HWY_TARGET == HWY_AVX2 ? 3 : 6;
inline constexpr size_t kTileSums = kBandTileTokens * kBandTileRows * kLanes;
static_assert(static_cast<size_t>(kStripRows) % kBandTileRows == 0);

// A block's tokens are shared out evenly over the fewest tiles: tile i of them starts at token
// BandTileBegin(n_tokens, i).
HWY_INLINE size_t BandTiles(size_t n_tokens) {
  return (n_tokens + kBandTileTokens - 1) / kBandTileTokens;
}
HWY_INLINE size_t BandTileBegin(size_t n_tokens, size_t i) {
  return i * n_tokens / BandTiles(n_tokens);
}

// Adds w[r] . x[t] over n elements, n a multiple of 16, to the tile's sums [kVecs][kTokens][kBandTileRows] of
// kVecLanes each; to zeros if `fresh`.
//
// A function of its own, because the compiler runs out of registers where it is part of a larger one.
template <size_t kTokens, class Elements>
HWY_NOINLINE void AddBandTile(const float* const* HWY_RESTRICT w, const float* const* HWY_RESTRICT x,
                              size_t n, bool fresh, float* HWY_RESTRICT sums) {
  const DF d;
  for (size_t v = 0; v < kVecs; ++v) {
    VF sum[kTokens][kBandTileRows];
#pragma GCC unroll 8
    for (size_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (size_t r = 0; r < kBandTileRows; ++r)
        sum[t][r] = fresh ? hn::Zero(d) : hn::Load(d, sums + (t * kBandTileRows + r) * kVecLanes);
    }
    const auto step = [&](size_t at) HWY_ATTR {
      // The fewer of the two are held, the others pass one by one: sixteen registers just suffice.
      if constexpr (kTokens < kBandTileRows) {
        VF xv[kTokens];
#pragma GCC unroll 8
        for (size_t t = 0; t < kTokens; ++t) xv[t] = hn::LoadU(d, x[t] + at);
#pragma GCC unroll 4
        for (size_t r = 0; r < kBandTileRows; ++r) {
          const VF row = hn::LoadU(d, w[r] + at);
#pragma GCC unroll 8
          for (size_t t = 0; t < kTokens; ++t) sum[t][r] = Elements::MulAdd(row, xv[t], sum[t][r]);
        }
      } else {
        VF row[kBandTileRows];
#pragma GCC unroll 4
        for (size_t r = 0; r < kBandTileRows; ++r) row[r] = hn::LoadU(d, w[r] + at);
#pragma GCC unroll 8
        for (size_t t = 0; t < kTokens; ++t) {
          const VF xv = hn::LoadU(d, x[t] + at);
#pragma GCC unroll 4
          for (size_t r = 0; r < kBandTileRows; ++r) sum[t][r] = Elements::MulAdd(row[r], xv, sum[t][r]);
        }
      }
    };
    // Four steps at a time, because a loop so short ends in a mispredicted branch.
    size_t at = v * kVecLanes;
    for (; at + 3 * kLanes < n; at += 4 * kLanes) {
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) step(at + i * kLanes);
    }
    for (; at < n; at += kLanes) step(at);
#pragma GCC unroll 8
    for (size_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (size_t r = 0; r < kBandTileRows; ++r)
        hn::Store(sum[t][r], d, sums + (t * kBandTileRows + r) * kVecLanes);
    }
    sums += kTokens * kBandTileRows * kVecLanes;
  }
}

// AddBandTile for a number of tokens known only at run time, 1 .. kBandTileTokens.
template <class Elements>
HWY_INLINE void AddBandTileN(size_t tokens, const float* const* HWY_RESTRICT w,
                             const float* const* HWY_RESTRICT x, size_t n, bool fresh,
                             float* HWY_RESTRICT sums) {
  if (tokens == 1) return AddBandTile<1, Elements>(w, x, n, fresh, sums);
  if (tokens == 2) return AddBandTile<2, Elements>(w, x, n, fresh, sums);
  if (tokens == 3) return AddBandTile<3, Elements>(w, x, n, fresh, sums);
  if constexpr (kBandTileTokens == 6) {
    if (tokens == 4) return AddBandTile<4, Elements>(w, x, n, fresh, sums);
    if (tokens == 5) return AddBandTile<5, Elements>(w, x, n, fresh, sums);
    return AddBandTile<6, Elements>(w, x, n, fresh, sums);
  }
}

// out[r] = the dot product whose partial sums, kLanes of them, are vectors v at sums[(v * stride + r) *
// kVecLanes], for kBandTileRows rows: sums l and l + 8 are added, then + 4, + 2, + 1.
HWY_INLINE void ReduceTileRows(const float* HWY_RESTRICT sums, size_t stride, float* HWY_RESTRICT out) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t r = 0; r < kBandTileRows; ++r) {
    VF lanes[kVecs];
    for (size_t v = 0; v < kVecs; ++v) lanes[v] = hn::Load(DF(), sums + v * stride + r);
    out[r] = ReduceLanes(lanes);
  }
#else
  const hn::FixedTag<float, 4> d4;
  const hn::RepartitionToWide<decltype(d4)> d8;
  hn::Vec<decltype(d4)> four[kBandTileRows];
#pragma GCC unroll 4
  for (size_t r = 0; r < kBandTileRows; ++r) {
    const auto lanes = [&](size_t l) HWY_ATTR {
      return hn::Load(d4, sums + (l / kVecLanes * stride + r) * kVecLanes + l % kVecLanes);
    };
    four[r] = hn::Add(hn::Add(lanes(0), lanes(8)), hn::Add(lanes(4), lanes(12)));
  }
  // (lane 0 + lane 2) + (lane 1 + lane 3) of each.
  const auto low01 = hn::BitCast(d8, hn::InterleaveLower(d4, four[0], four[1]));
  const auto high01 = hn::BitCast(d8, hn::InterleaveUpper(d4, four[0], four[1]));
  const auto low23 = hn::BitCast(d8, hn::InterleaveLower(d4, four[2], four[3]));
  const auto high23 = hn::BitCast(d8, hn::InterleaveUpper(d4, four[2], four[3]));
  const auto lane0 = hn::BitCast(d4, hn::InterleaveLower(d8, low01, low23));
  const auto lane1 = hn::BitCast(d4, hn::InterleaveUpper(d8, low01, low23));
  const auto lane2 = hn::BitCast(d4, hn::InterleaveLower(d8, high01, high23));
  const auto lane3 = hn::BitCast(d4, hn::InterleaveUpper(d8, high01, high23));
  hn::StoreU(hn::Add(hn::Add(lane0, lane2), hn::Add(lane1, lane3)), d4, out);
#endif
}

// The results of a tile with all its columns, for rows [0, n_rows) of it.
HWY_INLINE void StoreBandTile(const float* HWY_RESTRICT sums, size_t n_tokens, size_t n_rows, float* y,
                              int64_t y_stride) {
  for (size_t t = 0; t < n_tokens; ++t) {
    float* out = y + static_cast<int64_t>(t) * y_stride;
    const float* from = sums + t * kBandTileRows * kVecLanes;
    const size_t stride = n_tokens * kBandTileRows;
    if (n_rows >= kBandTileRows) {
      ReduceTileRows(from, stride, out);
    } else {
      float rows[kBandTileRows];
      ReduceTileRows(from, stride, rows);
      std::copy_n(rows, n_rows, out);
    }
  }
}

// Asks for the chunk from element c0 on, if there is one: pieces so short of so many rows are more than the
// processor foresees by itself.
template <class Row>
HWY_INLINE void PrefetchChunk(const WeightMatrix& a, int64_t first_row, size_t n_rows, size_t c0) {
  const size_t n = ElementsOf<Row>(a);
  if (c0 >= n) return;
  const size_t begin = c0 * Row::kBits / 8;
  const size_t end = HWY_MIN(c0 + kChunkCols, n) * Row::kBits / 8;
  for (size_t r = 0; r < n_rows; ++r) {
    const std::byte* row = a.data + (static_cast<size_t>(first_row) + r) * (n * Row::kBits / 8);
    for (size_t at = begin; at < end; at += 64) __builtin_prefetch(row + at);
  }
}

// A band of rows times a block of tokens. The partial sums wait in memory between chunks, unrounded.
template <class Row>
class Band {
 public:
  Band(const WeightMatrix& a, int64_t first_row, int64_t n_rows, const float* const* tokens, size_t n_tokens,
       float* y, int64_t y_stride, float* scratch)
      : a_(a),
        first_row_(first_row),
        n_rows_(static_cast<size_t>(n_rows)),
        tokens_(tokens),
        n_tokens_(n_tokens),
        y_(y),
        y_stride_(y_stride),
        decoded_(scratch),
        sums_(scratch + static_cast<size_t>(kStripRows) * kChunkCols) {}

  void Multiply() {
    const size_t n = ElementsOf<Row>(a_);
    for (size_t c0 = 0; c0 < n; c0 += kChunkCols) {
      for (size_t row = 0; row < n_rows_; row += kRows) AddStrip(row, c0, HWY_MIN(kChunkCols, n - c0));
    }
  }

 private:
  static constexpr auto kRows = static_cast<size_t>(kStripRows);

  // Elements [c0, c0 + n) of up to kStripRows rows from row `first` of the band on: decoded once, unless they
  // are floats already, and multiplied with all tokens of the block.
  HWY_INLINE void AddStrip(size_t first, size_t c0, size_t n) {
    const size_t n_rows = HWY_MIN(kRows, n_rows_ - first);
    const float* rows[kRows];
    for (size_t r = 0; r < n_rows; ++r) {
      const Row row(a_, first_row_ + static_cast<int64_t>(first + r));
      if constexpr (Row::kIsFloats) {
        rows[r] = row.floats() + c0;
      } else {
        DecodeInto(row, c0, c0 + n, decoded_ + r * n);
        rows[r] = decoded_ + r * n;
      }
    }
    PrefetchNext(first, c0 + n);
    // A ragged last tile computes its last row again, into sums that nobody reads.
    for (size_t r = n_rows; r % kBandTileRows != 0; ++r) rows[r] = rows[n_rows - 1];
    const bool last = c0 + n == ElementsOf<Row>(a_);
    const size_t n_tiles = BandTiles(n_tokens_);
    float* sums = sums_ + first / kBandTileRows * n_tiles * kTileSums;
    for (size_t tile = 0; tile < n_tiles; ++tile) {
      const size_t t = BandTileBegin(n_tokens_, tile);
      const size_t tile_tokens = BandTileBegin(n_tokens_, tile + 1) - t;
      const float* x[kBandTileTokens];
      for (size_t i = 0; i < tile_tokens; ++i) x[i] = tokens_[t + i] + c0;
      for (size_t r = 0; r < n_rows; r += kBandTileRows) {
        AddBandTileN<typename Row::Elements>(tile_tokens, rows + r, x, n, c0 == 0, sums);
        if (last) {
          StoreBandTile(sums, tile_tokens, n_rows - r,
                        y_ + static_cast<int64_t>(t) * y_stride_ + static_cast<int64_t>(first + r),
                        y_stride_);
        }
        sums += kTileSums;
      }
    }
  }

  // Asks for the codes that are needed at element c0 of the strip at `first`; in the first chunk, where no
  // strip was asked for before, also for the next strip's.
  HWY_INLINE void PrefetchNext(size_t first, size_t c0) const {
    PrefetchChunk<Row>(a_, first_row_ + static_cast<int64_t>(first), HWY_MIN(kRows, n_rows_ - first), c0);
    if (c0 <= kChunkCols && first + kRows < n_rows_) {
      const size_t next = first + kRows;
      PrefetchChunk<Row>(a_, first_row_ + static_cast<int64_t>(next), HWY_MIN(kRows, n_rows_ - next), 0);
    }
  }

  const WeightMatrix& a_;
  int64_t first_row_;
  size_t n_rows_;
  const float* const* tokens_;
  size_t n_tokens_;
  float* y_;
  int64_t y_stride_;
  float* decoded_;  // [kStripRows, kChunkCols] at most
  float* sums_;     // by strip, tile of tokens and tile of rows: kTileSums
};

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
