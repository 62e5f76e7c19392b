#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_int8.cc"
#include "kernels/targets_int8_dot.h"
// After it: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cstring>

#include "base/codecs.h"
#include "kernels/dot_tile-inl.h"
#include "kernels/int8_dot-inl.h"
#include "kernels/matmul_int8.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

inline constexpr size_t kInt8Block = 32;        // channels of a scale
inline constexpr size_t kInt8BlockBytes = 16;   // of fp4 codes
inline constexpr int64_t kInt8TokenBlock = 64;  // tokens that share a decoding
inline constexpr size_t kGroupBlocks = 4;       // of a QuantizedGroup

// Rounds a block's 32 values; its codes, even channels and odd ones, go to even[0 .. 16) and odd[0 .. 16).
HWY_INLINE void QuantizeBlock(const float* HWY_RESTRICT x, int8_t* HWY_RESTRICT even,
                              int8_t* HWY_RESTRICT odd, float& scale, int32_t& offset) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  VF largest = hn::Abs(hn::LoadU(d, x));
  for (size_t i = kVecLanes; i < kInt8Block; i += kVecLanes)
    largest = hn::Max(largest, hn::Abs(hn::LoadU(d, x + i)));
  const float a = hn::GetLane(hn::MaxOfLanes(d, largest));
  if (!(a >= 0x1p-100f)) {
    std::memset(even, 0, kInt8BlockBytes);
    std::memset(odd, 0, kInt8BlockBytes);
    scale = 0.0f;
    offset = 0;
    return;
  }
  const float step = a / 127.0f;
  const VF inverse = hn::Set(d, 1.0f / step);
  alignas(64) int32_t rounded[kInt8Block];
  for (size_t i = 0; i < kInt8Block; i += kVecLanes)
    hn::Store(hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), inverse)), di, rounded + i);
  int32_t sum = 0;
  for (size_t i = 0; i < kInt8BlockBytes; ++i) {
    even[i] = static_cast<int8_t>(rounded[2 * i]);
    odd[i] = static_cast<int8_t>(rounded[2 * i + 1]);
    sum += rounded[2 * i] + rounded[2 * i + 1];
  }
  scale = 0.5f * step;
  offset = -12 * sum;
}

void QuantizeInt8Impl(const float* HWY_RESTRICT x, size_t n, QuantizedGroup* HWY_RESTRICT groups) {
  constexpr size_t kGroup = kGroupBlocks * kInt8Block;
  if (n % kGroup != 0) std::memset(groups + n / kGroup, 0, sizeof(QuantizedGroup));
  for (size_t b = 0; b < n / kInt8Block; ++b) {
    QuantizedGroup& group = groups[b / kGroupBlocks];
    const size_t j = b % kGroupBlocks;
    QuantizeBlock(x + b * kInt8Block, group.even + j * kInt8BlockBytes, group.odd + j * kInt8BlockBytes,
                  group.scales[j], group.offsets[j]);
  }
}

void QuantizeInt8BlockImpl(const float* x, QuantizedGroup& group, size_t j) {
  QuantizeBlock(x, group.even + j * kInt8BlockBytes, group.odd + j * kInt8BlockBytes, group.scales[j],
                group.offsets[j]);
}

// A matrix as the loops below want it.
struct Int8Product {
  const uint8_t* codes;   // [rows, cols / 2]
  const uint8_t* scales;  // [rows, n_blocks]
  const uint8_t* scales_end;
  size_t n_rows;
  size_t n_blocks;
  size_t row_bytes;
};

#if MILLRACE_HAVE_BYTE_DOT

// Rows are lanes: kRows rows of a vector advance together, each summing its own blocks in order.
inline constexpr size_t kRows = kQuads;
// With many tokens a panel is kRowVecs such vectors, so that what is loaded of a token serves more rows. A
// tile of kTokensATile tokens then fills the registers with its sums.
inline constexpr size_t kRowVecs = kRows == 16 ? 2 : 1;
inline constexpr size_t kTokensATile = 4;
// Blocks whose decoded weights are kept in the nearest cache while all tokens visit them.
inline constexpr size_t kChunkBlocks = 16;
using DRow = hn::ScalableTag<float>;
using VRow = hn::Vec<DRow>;

// dwords[d] lane r = bytes 4 d .. 4 d + 3 of the sixteen at row(r).
template <class RowFn>
HWY_INLINE void TransposeDwords(const RowFn& row, VQuad (&dwords)[4]) {
  const DQuad d;
  const hn::FixedTag<uint8_t, 16> d128;
  VQuad z[4];
  // Vector k holds rows k, k + 4, ... so that the shuffles below, which act within 128 bits, leave rows in
  // order.
#pragma GCC unroll 4
  for (size_t k = 0; k < 4; ++k) {
    const hn::FixedTag<uint8_t, 32> d256;
    const auto low = hn::Combine(d256, hn::LoadU(d128, row(k + 4)), hn::LoadU(d128, row(k)));
    if constexpr (kRows == 16) {
      const auto high = hn::Combine(d256, hn::LoadU(d128, row(k + 12)), hn::LoadU(d128, row(k + 8)));
      z[k] = hn::BitCast(d, hn::Combine(DByte(), high, low));
    } else {
      z[k] = hn::BitCast(d, low);
    }
  }
  TransposeQuads(z, dwords);
}

// scales[b * stride + r] = the weight scale of row rows[r], block first_block + b.
HWY_INLINE void DecodeScales(const Int8Product& a, const size_t* HWY_RESTRICT rows, size_t first_block,
                             size_t n, float* HWY_RESTRICT scales, size_t stride) {
  const DQuad d;
  alignas(16) uint8_t padded[kRows][kChunkBlocks];
  const uint8_t* from[kRows];
  for (size_t r = 0; r < kRows; ++r) from[r] = a.scales + rows[r] * a.n_blocks + first_block;
  for (size_t r = 0; n < kChunkBlocks && r < kRows; ++r) {
    if (static_cast<size_t>(a.scales_end - from[r]) >= kChunkBlocks) continue;
    // A read of sixteen would leave the matrix.
    std::memset(padded[r], 0, kChunkBlocks);
    std::memcpy(padded[r], from[r], n);
    from[r] = padded[r];
  }
  VQuad dwords[4];
  TransposeDwords([&](size_t r) HWY_ATTR { return from[r]; }, dwords);
  for (size_t q = 0; q < kChunkBlocks / 4; ++q) {
    VQuad codes = dwords[q];
    for (size_t b = 4 * q; b < 4 * q + 4; ++b) {
      // 2^(code - 127): the code is the exponent field; code 0 is the subnormal 2^-127.
      const VQuad exponent = hn::ShiftLeft<23>(hn::And(codes, hn::Set(d, 255)));
      hn::Store(hn::Max(exponent, hn::Set(d, 0x00400000)), d,
                reinterpret_cast<int32_t*>(scales) + b * stride);
      codes = hn::ShiftRight<8>(codes);
    }
  }
}

// kRows rows that lie equally far apart: row r from byte `first` + r * `stride` on. Four bases instead of
// kRows pointers, of which the processor has too few.
struct SpacedRows {
  SpacedRows(const uint8_t* first, size_t stride_bytes) : stride(stride_bytes) {
    for (size_t g = 0; g < kRows / 4; ++g) bases[g] = first + 4 * g * stride;
  }
  HWY_INLINE const uint8_t* operator[](size_t r) const { return bases[r / 4] + r % 4 * stride; }

  const uint8_t* bases[kRows / 4];
  size_t stride;
};

// One block of kRows rows as eight vectors, vector n at panel[n * stride ..]: lane r of vector d < 4 holds
// four even columns of row r, of vector 4 + d the four odd ones between them, from dword d of the row's
// block.
HWY_INLINE void DecodeBlock(const SpacedRows& codes, size_t block, uint8_t* HWY_RESTRICT panel,
                            size_t stride) {
  VQuad dwords[4];
  TransposeDwords([&](size_t r) HWY_ATTR { return codes[r] + block * kInt8BlockBytes; }, dwords);
#pragma GCC unroll 4
  for (size_t d = 0; d < 4; ++d) {
    VByte weights[2];
    DecodeNibbles(hn::BitCast(DByte(), dwords[d]), weights);
    hn::Store(weights[0], DByte(), panel + d * stride);
    hn::Store(weights[1], DByte(), panel + (4 + d) * stride);
  }
}

// The codes that a strip of rows needs after its chunk at block `first`: the next columns or, at their end,
// the first ones of the strip below. Asked for a row at a time, in between other work, because the processor
// keeps few requests in flight.
struct NextChunk {
  NextChunk(const Int8Product& a, size_t row, size_t n_rows, size_t row_end, size_t first)
      : row_bytes(a.row_bytes), n_rows_left(0) {
    size_t block = first + kChunkBlocks;
    if (block >= a.n_blocks) {
      block = 0;
      row += n_rows;
    }
    if (row >= row_end) return;
    n_rows_left = HWY_MIN(n_rows, row_end - row);
    bytes = HWY_MIN(kChunkBlocks, a.n_blocks - block) * kInt8BlockBytes;
    codes = a.codes + row * a.row_bytes + block * kInt8BlockBytes;
  }

  HWY_INLINE void PrefetchRow() {
    if (n_rows_left == 0) return;
    for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(codes + line);
    codes += row_bytes;
    --n_rows_left;
  }

  size_t row_bytes;
  size_t n_rows_left;  // to ask for
  size_t bytes = 0;    // of each
  const uint8_t* codes = nullptr;
};

// Adds one block's products with kTokens tokens to the sums of kVecs x kRows rows: the block's decoded
// weights are at `panel`, their scales at `scales`; it is number j of the tokens' groups.
template <size_t kTokens, size_t kVecs>
HWY_INLINE void AddBlock(const uint8_t* HWY_RESTRICT panel, const float* HWY_RESTRICT scales,
                         const QuantizedGroup* const (&x)[kTokens], size_t j, VRow (&sums)[kTokens][kVecs]) {
  const DRow d;
  VQuad products[kTokens][kVecs];
#pragma GCC unroll 8
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t v = 0; v < kVecs; ++v) products[t][v] = hn::Set(DQuad(), x[t]->offsets[j]);
  }
  AddQuadProducts<kTokens, kVecs>(panel, x, j * kInt8BlockBytes, products);
#pragma GCC unroll 8
  for (size_t t = 0; t < kTokens; ++t) {
    const VRow token_scale = hn::Set(d, x[t]->scales[j]);
#pragma GCC unroll 2
    for (size_t v = 0; v < kVecs; ++v) {
      const VRow scale = hn::Mul(hn::Load(d, scales + v * kRows), token_scale);
      sums[t][v] = hn::MulAdd(hn::ConvertTo(d, products[t][v]), scale, sums[t][v]);
    }
  }
}

inline constexpr size_t kInt8PanelRows = kRowVecs * kRows;
inline constexpr size_t kPanelBlockBytes = 8 * kRowVecs * sizeof(VByte);

// sums[t * kInt8PanelRows + r] += the products of a chunk's n blocks with kTokens tokens, whose groups for
// the chunk start at x[t]. A function of its own, because the compiler runs out of registers where it is part
// of a larger one.
template <size_t kTokens>
HWY_NOINLINE void AddPanel(const uint8_t* HWY_RESTRICT panel, const float* HWY_RESTRICT scales, size_t n,
                           const QuantizedGroup* const* HWY_RESTRICT x, float* HWY_RESTRICT sums,
                           NextChunk& next) {
  const DRow d;
  VRow sum[kTokens][kRowVecs];
  const QuantizedGroup* at[kTokens];
#pragma GCC unroll 8
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t v = 0; v < kRowVecs; ++v) sum[t][v] = hn::LoadU(d, sums + (t * kRowVecs + v) * kRows);
    at[t] = x[t];
  }
  size_t b = 0;
  for (; b + kGroupBlocks <= n; b += kGroupBlocks) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kGroupBlocks; ++j) {
      next.PrefetchRow();
      AddBlock<kTokens, kRowVecs>(panel + (b + j) * kPanelBlockBytes, scales + (b + j) * kInt8PanelRows, at,
                                  j, sum);
    }
#pragma GCC unroll 8
    for (size_t t = 0; t < kTokens; ++t) ++at[t];
  }
  for (size_t j = 0; b + j < n; ++j)
    AddBlock<kTokens, kRowVecs>(panel + (b + j) * kPanelBlockBytes, scales + (b + j) * kInt8PanelRows, at, j,
                                sum);
#pragma GCC unroll 8
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t v = 0; v < kRowVecs; ++v) hn::StoreU(sum[t][v], d, sums + (t * kRowVecs + v) * kRows);
  }
}

HWY_INLINE void AddPanelN(size_t tokens, const uint8_t* HWY_RESTRICT panel, const float* HWY_RESTRICT scales,
                          size_t n, const QuantizedGroup* const* HWY_RESTRICT x, float* HWY_RESTRICT sums,
                          NextChunk& next) {
  if (tokens == 1) return AddPanel<1>(panel, scales, n, x, sums, next);
  if (tokens == 2) return AddPanel<2>(panel, scales, n, x, sums, next);
  if (tokens == 3) return AddPanel<3>(panel, scales, n, x, sums, next);
  return AddPanel<4>(panel, scales, n, x, sums, next);
}

// Where a thread keeps a panel's chunk and the sums of its rows.
struct PanelScratch {
  float* sums;     // [kInt8TokenBlock, kInt8PanelRows]
  float* scales;   // [kChunkBlocks, kInt8PanelRows]
  uint8_t* panel;  // [kChunkBlocks, kPanelBlockBytes]
};

// kInt8PanelRows rows, row + r * row_stride, times many tokens: each chunk of weights is decoded once, into
// row order, and multiplied with all of them.
HWY_INLINE void PanelManyTokens(const Int8Product& a, size_t row, size_t row_stride, size_t row_end,
                                const QuantizedGroup* const* HWY_RESTRICT x, size_t n_tokens,
                                const PanelScratch& scratch) {
  size_t rows[kInt8PanelRows];
  for (size_t r = 0; r < kInt8PanelRows; ++r) rows[r] = row + r * row_stride;
  std::fill_n(scratch.sums, n_tokens * kInt8PanelRows, 0.0f);
  for (size_t first = 0; first < a.n_blocks; first += kChunkBlocks) {
    const size_t n = HWY_MIN(kChunkBlocks, a.n_blocks - first);
    for (size_t v = 0; v < kRowVecs; ++v) {
      DecodeScales(a, rows + v * kRows, first, n, scratch.scales + v * kRows, kInt8PanelRows);
      const SpacedRows codes(a.codes + rows[v * kRows] * a.row_bytes, row_stride * a.row_bytes);
      for (size_t b = 0; b < n; ++b) {
        DecodeBlock(codes, first + b, scratch.panel + b * kPanelBlockBytes + v * sizeof(VByte),
                    kRowVecs * sizeof(VByte));
      }
    }
    NextChunk next(a, row, kInt8PanelRows, row_end, first);
    for (size_t t = 0; t < n_tokens; t += kTokensATile) {
      const size_t n_tile = HWY_MIN(kTokensATile, n_tokens - t);
      const QuantizedGroup* tile[kTokensATile];
      for (size_t i = 0; i < n_tile; ++i) tile[i] = x[t + i] + first / kGroupBlocks;
      AddPanelN(n_tile, scratch.panel, scratch.scales, n, tile, scratch.sums + t * kInt8PanelRows, next);
    }
    while (next.n_rows_left > 0) next.PrefetchRow();
  }
}

// Blocks whose codes fill a vector.
inline constexpr size_t kBlocksAVec = kRows / 4;
// How far ahead a row's codes and its scales are asked for. They are to come to the second cache: the rows of
// a range are often a multiple of 4 KB apart, so that the nearest one, which has room for eight or twelve
// lines of such addresses, would lose what comes early.
inline constexpr size_t kBytesAhead = 2048;
inline constexpr size_t kScalesAhead = 128;
HWY_INLINE void PrefetchToSecondCache(const uint8_t* bytes) {
  __builtin_prefetch(bytes, /*rw=*/0, /*locality=*/2);
}

// groups[g] holds, in its 128 bits j, rows 4 g .. 4 g + 3 of block j; afterwards blocks[j] holds all rows of
// block j.
HWY_INLINE void GroupsToBlocks(const VQuad (&groups)[kRows / 4], VQuad (&blocks)[kBlocksAVec]) {
  const DQuad d;
#if HWY_TARGET == HWY_AVX2
  blocks[0] = hn::ConcatLowerLower(d, groups[1], groups[0]);
  blocks[1] = hn::ConcatUpperUpper(d, groups[1], groups[0]);
#else
  const VQuad low01{_mm512_shuffle_i32x4(groups[0].raw, groups[1].raw, 0x44)};
  const VQuad low23{_mm512_shuffle_i32x4(groups[2].raw, groups[3].raw, 0x44)};
  const VQuad high01{_mm512_shuffle_i32x4(groups[0].raw, groups[1].raw, 0xEE)};
  const VQuad high23{_mm512_shuffle_i32x4(groups[2].raw, groups[3].raw, 0xEE)};
  blocks[0] = VQuad{_mm512_shuffle_i32x4(low01.raw, low23.raw, 0x88)};
  blocks[1] = VQuad{_mm512_shuffle_i32x4(low01.raw, low23.raw, 0xDD)};
  blocks[2] = VQuad{_mm512_shuffle_i32x4(high01.raw, high23.raw, 0x88)};
  blocks[3] = VQuad{_mm512_shuffle_i32x4(high01.raw, high23.raw, 0xDD)};
  (void)d;
#endif
}

// 128 bits b of all lanes: offsets[b].
HWY_INLINE VQuad SpreadOffsets(const int32_t* HWY_RESTRICT offsets) {
  const DQuad d;
  alignas(64) static constexpr int32_t kBlockOfLane[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  return hn::TableLookupLanes(hn::LoadDup128(d, offsets), hn::SetTableIndices(d, kBlockOfLane));
}

// Adds the products of kBlocksAVec blocks, numbers j .. of the groups at x[t], to the sums of kRows rows,
// whose codes for these blocks start at codes[r] + from.
template <size_t kTokens>
HWY_INLINE void AddRowBytes(const SpacedRows& codes, size_t from, const float* HWY_RESTRICT scales,
                            const QuantizedGroup* const (&x)[kTokens], size_t j, VRow (&sums)[kTokens][1]) {
  const DRow d;
  const DByte d8;
  VQuad groups[kTokens][kRows / 4];
#pragma GCC unroll 4
  for (size_t g = 0; g < kRows / 4; ++g) {
    VByte weights[4][2];
#pragma GCC unroll 4
    for (size_t r = 0; r < 4; ++r) DecodeNibbles(LoadOnce(codes[4 * g + r] + from), weights[r]);
#pragma GCC unroll 4
    for (size_t t = 0; t < kTokens; ++t) {
      const VByte values[2] = {
          hn::LoadU(d8, reinterpret_cast<const uint8_t*>(x[t]->even + j * kInt8BlockBytes)),
          hn::LoadU(d8, reinterpret_cast<const uint8_t*>(x[t]->odd + j * kInt8BlockBytes))};
      VRowProducts products[4];
#pragma GCC unroll 4
      for (size_t r = 0; r < 4; ++r) products[r] = RowProducts(weights[r], values);
      groups[t][g] = SumFourRows(products, SpreadOffsets(x[t]->offsets + j));
    }
  }
#pragma GCC unroll 4
  for (size_t t = 0; t < kTokens; ++t) {
    VQuad exact[kBlocksAVec];
    GroupsToBlocks(groups[t], exact);
#pragma GCC unroll 4
    for (size_t b = 0; b < kBlocksAVec; ++b) {
      const VRow scale = hn::Mul(hn::Load(d, scales + b * kRows), hn::Set(d, x[t]->scales[j + b]));
      sums[t][0] = hn::MulAdd(hn::ConvertTo(d, exact[b]), scale, sums[t][0]);
    }
  }
}

// lanes[t * kRows + r] = row `row` + r * row_stride, all of which exist, times token t. For so few tokens
// that weights are used straight from their rows' bytes.
template <size_t kTokens>
HWY_INLINE void RowsFewTokens(const Int8Product& a, size_t row, size_t row_stride,
                              const QuantizedGroup* const* HWY_RESTRICT x, const PanelScratch& scratch,
                              float* HWY_RESTRICT lanes) {
  const DRow d;
  VRow sums[kTokens][1];
  for (size_t t = 0; t < kTokens; ++t) sums[t][0] = hn::Zero(d);
  size_t rows[kRows];
  for (size_t r = 0; r < kRows; ++r) rows[r] = row + r * row_stride;
  const SpacedRows codes(a.codes + row * a.row_bytes, row_stride * a.row_bytes);
  for (size_t first = 0; first < a.n_blocks; first += kChunkBlocks) {
    const size_t end = HWY_MIN(first + kChunkBlocks, a.n_blocks);
    DecodeScales(a, rows, first, end - first, scratch.scales, kRows);
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r)
      PrefetchToSecondCache(a.scales + rows[r] * a.n_blocks + first + kScalesAhead);
    for (size_t block = first; block < end;) {
      const QuantizedGroup* at[kTokens];
#pragma GCC unroll 4
      for (size_t t = 0; t < kTokens; ++t) at[t] = x[t] + block / kGroupBlocks;
      const size_t j = block % kGroupBlocks;
      const size_t from = block * kInt8BlockBytes;
      const float* scales = scratch.scales + (block - first) * kRows;
      if (j == 0) {
#pragma GCC unroll 16
        for (size_t r = 0; r < kRows; ++r) PrefetchToSecondCache(codes[r] + from + kBytesAhead);
      }
      if (block + kBlocksAVec <= end) [[likely]] {
        AddRowBytes<kTokens>(codes, from, scales, at, j, sums);
        block += kBlocksAVec;
      } else {
        DecodeBlock(codes, block, scratch.panel, sizeof(VByte));
        AddBlock<kTokens, 1>(scratch.panel, scales, at, j, sums);
        ++block;
      }
    }
  }
  for (size_t t = 0; t < kTokens; ++t) hn::StoreU(sums[t][0], d, lanes + t * kRows);
}

// y[t * y_stride + row] for rows [row_begin, row_end) of a matrix that has at least kRows rows. Lane r works
// through one kRows-th of the rows, from its first to its last: the processor then sees kRows long streams,
// which it reads ahead of, instead of many short rows side by side, which it does not.
template <size_t kTokens>
HWY_INLINE void RangeFewTokens(const Int8Product& a, size_t row_begin, size_t row_end,
                               const QuantizedGroup* const* HWY_RESTRICT x, float* HWY_RESTRICT y,
                               int64_t y_stride, const PanelScratch& scratch) {
  const auto multiply = [&](size_t row, size_t row_stride) HWY_ATTR {
    alignas(64) float lanes[kTokens * kRows];
    RowsFewTokens<kTokens>(a, row, row_stride, x, scratch, lanes);
    for (size_t r = 0; r < kRows; ++r) {
      const size_t to = row + r * row_stride;
      if (to < row_begin || to >= row_end) continue;
      for (size_t t = 0; t < kTokens; ++t)
        y[static_cast<int64_t>(t) * y_stride + static_cast<int64_t>(to)] = lanes[t * kRows + r];
    }
  };
  const size_t rows_a_lane = (row_end - row_begin) / kRows;
  for (size_t i = 0; i < rows_a_lane; ++i) multiply(row_begin + i, rows_a_lane);
  // The rows left over are the last of kRows neighbours, of which the others are computed once more or for
  // nothing.
  if (row_begin + rows_a_lane * kRows < row_end) multiply(HWY_MAX(row_end, kRows) - kRows, 1);
}

void MultiplyRows(const Int8Product& a, size_t row_begin, size_t row_end, const QuantizedGroup* const* x,
                  size_t n_tokens, float* y, int64_t y_stride, float* memory) {
  PanelScratch scratch;
  scratch.sums = memory;
  scratch.scales = scratch.sums + kInt8TokenBlock * kInt8PanelRows;
  scratch.panel = reinterpret_cast<uint8_t*>(scratch.scales + kChunkBlocks * kInt8PanelRows);
  if (a.n_rows >= kRows) {
    if (n_tokens == 1) return RangeFewTokens<1>(a, row_begin, row_end, x, y, y_stride, scratch);
    if (n_tokens == 2) return RangeFewTokens<2>(a, row_begin, row_end, x, y, y_stride, scratch);
    if (n_tokens == 3) return RangeFewTokens<3>(a, row_begin, row_end, x, y, y_stride, scratch);
    if (n_tokens == 4) return RangeFewTokens<4>(a, row_begin, row_end, x, y, y_stride, scratch);
  }
  // A ragged last panel computes some of its neighbours' rows and drops them; of a matrix that is smaller
  // than a panel, each row fills one.
  const bool small = a.n_rows < kInt8PanelRows;
  const size_t step = small ? 1 : kInt8PanelRows;
  for (size_t row = row_begin; row < row_end; row += step) {
    const size_t first = small ? row : HWY_MIN(row, a.n_rows - kInt8PanelRows);
    PanelManyTokens(a, first, small ? 0 : 1, row_end, x, n_tokens, scratch);
    const size_t n_rows = HWY_MIN(step, row_end - row);
    for (size_t t = 0; t < n_tokens; ++t) {
      std::copy_n(scratch.sums + t * kInt8PanelRows + (row - first), n_rows,
                  y + static_cast<int64_t>(t) * y_stride + row);
    }
  }
}

#else  // !MILLRACE_HAVE_BYTE_DOT

// The plain order of the contract.
void MultiplyRows(const Int8Product& a, size_t row_begin, size_t row_end, const QuantizedGroup* const* x,
                  size_t n_tokens, float* y, int64_t y_stride, float* /*scratch*/) {
  static constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (size_t row = row_begin; row < row_end; ++row) {
    const uint8_t* codes = a.codes + row * a.row_bytes;
    for (size_t t = 0; t < n_tokens; ++t) {
      float sum = 0;
      for (size_t b = 0; b < a.n_blocks; ++b) {
        const QuantizedGroup& group = x[t][b / kGroupBlocks];
        const size_t j = b % kGroupBlocks;
        int32_t products = 0;
        for (size_t i = 0; i < kInt8BlockBytes; ++i) {
          const uint8_t pair = codes[b * kInt8BlockBytes + i];
          products += kDoubled[pair & 15] * group.even[j * kInt8BlockBytes + i];
          products += kDoubled[pair >> 4] * group.odd[j * kInt8BlockBytes + i];
        }
        const float scale = E8m0ToFloat(a.scales[row * a.n_blocks + b]) * group.scales[j];
        sum = std::fma(static_cast<float>(products), scale, sum);
      }
      y[static_cast<int64_t>(t) * y_stride + static_cast<int64_t>(row)] = sum;
    }
  }
}

#endif

void MatMulInt8Impl(const WeightMatrix& a, int64_t row_begin, int64_t row_end, const QuantizedRows& x,
                    int64_t n_tokens, float* y, int64_t y_stride, float* scratch) {
  const auto cols = static_cast<size_t>(a.cols);
  const size_t n_blocks = cols / kInt8Block;
  const Int8Product product{
      .codes = reinterpret_cast<const uint8_t*>(a.data),
      .scales = reinterpret_cast<const uint8_t*>(a.scales),
      .scales_end = reinterpret_cast<const uint8_t*>(a.scales) + static_cast<size_t>(a.rows) * n_blocks,
      .n_rows = static_cast<size_t>(a.rows),
      .n_blocks = n_blocks,
      .row_bytes = cols / 2};
  for (int64_t t0 = 0; t0 < n_tokens; t0 += kInt8TokenBlock) {
    const auto n = static_cast<size_t>(std::min<int64_t>(kInt8TokenBlock, n_tokens - t0));
    const QuantizedGroup* tokens[kInt8TokenBlock];
    for (size_t t = 0; t < n; ++t) {
      const int64_t token = t0 + static_cast<int64_t>(t);
      tokens[t] = x.base + (x.index != nullptr ? x.index[token] : token) * QuantizedGroups(a.cols);
    }
    MultiplyRows(product, static_cast<size_t>(row_begin), static_cast<size_t>(row_end), tokens, n,
                 y + t0 * y_stride, y_stride, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/check.h"
#include "kernels/align.h"

namespace millrace::kernels {
HWY_EXPORT(QuantizeInt8Impl);
HWY_EXPORT(QuantizeInt8BlockImpl);
HWY_EXPORT(MatMulInt8Impl);

void QuantizeInt8(const float* x, int64_t n, QuantizedGroup* groups) {
  HWY_DYNAMIC_DISPATCH(QuantizeInt8Impl)(x, static_cast<size_t>(n), groups);
}

void QuantizeInt8Block(const float* x, QuantizedGroup& group, int64_t j) {
  HWY_DYNAMIC_DISPATCH(QuantizeInt8BlockImpl)(x, group, static_cast<size_t>(j));
}

void MatMulInt8(const WeightMatrix& a, int64_t row_begin, int64_t row_end, const QuantizedRows& x,
                int64_t n_tokens, float* y, int64_t y_stride, std::span<float> scratch) {
  MILLRACE_CHECK(a.format == WeightFormat::kFp4Row32, "integer products are for fp4 weights");
  MILLRACE_CHECK(a.cols == x.cols, "the activations are not as wide as the matrix");
  MILLRACE_CHECK(row_begin >= 0 && row_begin <= row_end && row_end <= a.rows, "row range outside the matrix");
  MILLRACE_CHECK(scratch.size() >= kMatMulInt8ScratchFloats, "matmul scratch smaller than announced");
  // Wide stores that straddle cache lines cost twice.
  HWY_DYNAMIC_DISPATCH(MatMulInt8Impl)
  (a, row_begin, row_end, x, n_tokens, y, y_stride, AlignToCacheLine(scratch.data()));
}

}  // namespace millrace::kernels
#endif
