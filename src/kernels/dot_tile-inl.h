// The inner tile of every dot product in this folder. Included once per instruction set (no #pragma once).

#if defined(MILLRACE_KERNELS_DOT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_DOT_TILE_INL_H_
#undef MILLRACE_KERNELS_DOT_TILE_INL_H_
#else
#define MILLRACE_KERNELS_DOT_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sixteen partial sums, whatever the vectors' width: the canonical order of matmul.h.
inline constexpr size_t kLanes = 16;
using DF = hn::CappedTag<float, kLanes>;
using VF = hn::Vec<DF>;
inline constexpr size_t kVecLanes = HWY_MIN(HWY_LANES(float), kLanes);
inline constexpr size_t kVecs = kLanes / kVecLanes;  // vectors that hold the sixteen sums

// The tile is as large as the registers allow: 16 vector registers with AVX2, 32 otherwise.
inline constexpr size_t kTileRows = kVecs == 1 ? 4 : 2;
inline constexpr size_t kTileTokens = kVecs == 1 ? 4 : 3;

// a * b + c rounded once, on every instruction set. The two fallbacks (which of them is compiled depends on
// the compiler) have no such instruction and would round twice.
HWY_INLINE VF Fma(VF a, VF b, VF c) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  const DF d;
  alignas(16) float lanes[3][kVecLanes];
  hn::Store(a, d, lanes[0]);
  hn::Store(b, d, lanes[1]);
  hn::Store(c, d, lanes[2]);
  for (size_t l = 0; l < kVecLanes; ++l) lanes[2][l] = std::fma(lanes[0][l], lanes[1][l], lanes[2][l]);
  return hn::Load(d, lanes[2]);
#else
  return hn::MulAdd(a, b, c);
#endif
}

// Adds sums l and l + 8, then + 4, + 2, + 1.
HWY_INLINE float ReduceLanes(const VF* HWY_RESTRICT sums) {
  alignas(64) float lanes[kLanes];
  const DF d;
  for (size_t v = 0; v < kVecs; ++v) hn::Store(sums[v], d, lanes + v * kVecLanes);
  if constexpr (kVecLanes >= 4) {
    const hn::CappedTag<float, 4> d4;
    const auto a = hn::Add(hn::Load(d4, lanes), hn::Load(d4, lanes + 8));
    const auto b = hn::Add(hn::Load(d4, lanes + 4), hn::Load(d4, lanes + 12));
    hn::Store(hn::Add(a, b), d4, lanes);
  } else {
    for (size_t l = 0; l < 4; ++l) lanes[l] = (lanes[l] + lanes[l + 8]) + (lanes[l + 4] + lanes[l + 12]);
  }
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// The partial sums of kTokens x kRows dot products.
template <size_t kTokens, size_t kRows = kTileRows>
using TileSums = VF[kTokens][kRows][kVecs];

template <size_t kTokens, size_t kRows = kTileRows>
HWY_INLINE void ZeroSums(TileSums<kTokens, kRows>& sums) {
#pragma GCC unroll 8
  for (size_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t v = 0; v < kVecs; ++v) sums[t][r][v] = hn::Zero(DF());
    }
  }
}

// Adds w[r] . x[t] over n elements, n a multiple of 16.
template <size_t kTokens, size_t kRows = kTileRows>
HWY_INLINE void AddToSums(const float* const* HWY_RESTRICT w, const float* const* HWY_RESTRICT x, size_t n,
                          TileSums<kTokens, kRows>& sums) {
  const DF d;
  for (size_t i = 0; i < n; i += kLanes) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kVecs; ++v) {
      const size_t at = i + v * kVecLanes;
      VF row[kRows];
#pragma GCC unroll 4
      for (size_t r = 0; r < kRows; ++r) row[r] = hn::LoadU(d, w[r] + at);
#pragma GCC unroll 8
      for (size_t t = 0; t < kTokens; ++t) {
        const VF xv = hn::LoadU(d, x[t] + at);
#pragma GCC unroll 4
        for (size_t r = 0; r < kRows; ++r) sums[t][r][v] = Fma(row[r], xv, sums[t][r][v]);
      }
    }
  }
}

// out[t * kTileRows + r] = w[r] . x[t] for kTileRows rows and kTokens vectors of n elements, n a multiple
// of 16.
template <size_t kTokens>
HWY_INLINE void DotTile(const float* const* HWY_RESTRICT w, const float* const* HWY_RESTRICT x, size_t n,
                        float* HWY_RESTRICT out) {
  TileSums<kTokens> sums;
  ZeroSums<kTokens>(sums);
  AddToSums<kTokens>(w, x, n, sums);
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t r = 0; r < kTileRows; ++r) out[t * kTileRows + r] = ReduceLanes(sums[t][r]);
  }
}

// DotTile for a number of tokens known only at run time, 1 .. kTileTokens.
HWY_INLINE void DotTileN(size_t tokens, const float* const* HWY_RESTRICT w,
                         const float* const* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT out) {
  if (tokens == 1) return DotTile<1>(w, x, n, out);
  if (tokens == 2) return DotTile<2>(w, x, n, out);
  if (tokens == 3) return DotTile<3>(w, x, n, out);
  if constexpr (kTileTokens >= 4) return DotTile<4>(w, x, n, out);
}

// All products of `rows` row vectors (at w + r * w_stride) with `tokens` vectors (x[t]):
// store(t, r, value) for each.
template <typename Store>
HWY_INLINE void DotBlock(const float* w, size_t w_stride, size_t rows, const float* const* x, size_t tokens,
                         size_t n, const Store& store) {
  for (size_t t0 = 0; t0 < tokens; t0 += kTileTokens) {
    const size_t tile_tokens = HWY_MIN(kTileTokens, tokens - t0);
    for (size_t r0 = 0; r0 < rows; r0 += kTileRows) {
      const float* row[kTileRows];
      // A ragged last tile computes its last row again and drops it.
      for (size_t r = 0; r < kTileRows; ++r) row[r] = w + HWY_MIN(r0 + r, rows - 1) * w_stride;
      float out[kTileTokens * kTileRows];
      DotTileN(tile_tokens, row, x + t0, n, out);
      for (size_t t = 0; t < tile_tokens; ++t) {
        for (size_t r = 0; r < HWY_MIN(kTileRows, rows - r0); ++r)
          store(t0 + t, r0 + r, out[t * kTileRows + r]);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
