// Products of tiles of keys and heads for index_score.cc. Included once per instruction set (no #pragma
// once).

#if defined(MILLRACE_KERNELS_INDEX_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_INDEX_SCORE_INL_H_
#undef MILLRACE_KERNELS_INDEX_SCORE_INL_H_
#else
#define MILLRACE_KERNELS_INDEX_SCORE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/index_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// The kKeyVecs vectors of keys of quad q, in block `keys`.
HWY_INLINE void LoadKeys(const uint8_t* HWY_RESTRICT keys, size_t q, VByte (&key)[kKeyVecs]) {
#pragma GCC unroll 4
  for (size_t v = 0; v < kKeyVecs; ++v) key[v] = hn::Load(DByte(), keys + q * kQuadBytes + v * 4 * kQuads);
}

#if HWY_TARGET == HWY_AVX3_DL
inline constexpr size_t kHeads = 8;

// sums[h][v] = offsets[h] + the sum over n_blocks blocks of quads of keys * codes. Asks for a line of `next`
// for each vector and block.
HWY_INLINE void QuadSums(const uint8_t* HWY_RESTRICT keys, const int8_t* HWY_RESTRICT codes, size_t n_blocks,
                         const int32_t* HWY_RESTRICT offsets, const uint8_t* next,
                         VQuad (&sums)[kHeads][kKeyVecs]) {
#pragma GCC unroll 8
  for (size_t h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kKeyVecs; ++v) sums[h][v] = hn::Set(DQuad(), offsets[h]);
  }
  for (size_t b = 0; b < n_blocks;
       ++b, keys += kBlockQuads * kQuadBytes, codes += kBlockQuads * kHeadTile * 4) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kKeyVecs; ++v) __builtin_prefetch(next + (b * kKeyVecs + v) * 64);
#pragma GCC unroll 8
    for (size_t q = 0; q < kBlockQuads; ++q) {
      VByte key[kKeyVecs];
      LoadKeys(keys, q, key);
#pragma GCC unroll 8
      for (size_t h = 0; h < kHeads; ++h) {
        const VByte code = BroadcastQuad(codes + (q * kHeadTile + h) * 4);
#pragma GCC unroll 4
        for (size_t v = 0; v < kKeyVecs; ++v) sums[h][v] = AddByteProducts(sums[h][v], key[v], code);
      }
    }
  }
}
#else
inline constexpr size_t kHeads = 4;

// The compiler may not rearrange the sum: it would make all products first and run out of registers.
HWY_INLINE void KeepOrder(VPair& sum) {
#if MILLRACE_HAVE_BYTE_DOT
  asm("" : "+v"(sum.raw));
#else
  (void)sum;
#endif
}

// pairs[h][v] += the products of one block's quads of keys * codes, in halves of 16 bits.
HWY_INLINE void AddPairProducts(const uint8_t* HWY_RESTRICT keys, const int8_t* HWY_RESTRICT codes,
                                const uint8_t* next, VPair (&pairs)[kHeads][kKeyVecs]) {
#pragma GCC unroll 4
  for (size_t v = 0; v < kKeyVecs; ++v) __builtin_prefetch(next + v * 64);
#pragma GCC unroll 8
  for (size_t q = 0; q < kBlockQuads; ++q) {
    VByte key[kKeyVecs];
    LoadKeys(keys, q, key);
#pragma GCC unroll 8
    for (size_t h = 0; h < kHeads; ++h) {
      const VByte code = BroadcastQuad(codes + (q * kHeadTile + h) * 4);
#pragma GCC unroll 4
      for (size_t v = 0; v < kKeyVecs; ++v) {
        pairs[h][v] = hn::Add(pairs[h][v], PairProducts(key[v], code));
        KeepOrder(pairs[h][v]);
      }
    }
  }
}

// sums[h][v] = offsets[h] + the sum over one block of keys * codes. At most 8 * 2 * 24 * 12 come into a half.
HWY_INLINE void QuadSums(const uint8_t* HWY_RESTRICT keys, const int8_t* HWY_RESTRICT codes, size_t,
                         const int32_t* HWY_RESTRICT offsets, const uint8_t* next,
                         VQuad (&sums)[kHeads][kKeyVecs]) {
  VPair pairs[kHeads][kKeyVecs];
#pragma GCC unroll 8
  for (size_t h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kKeyVecs; ++v) pairs[h][v] = hn::Zero(DPair());
  }
  AddPairProducts(keys, codes, next, pairs);
#pragma GCC unroll 8
  for (size_t h = 0; h < kHeads; ++h) {
    const VQuad offset = hn::Set(DQuad(), offsets[h]);
#pragma GCC unroll 4
    for (size_t v = 0; v < kKeyVecs; ++v) sums[h][v] = hn::Add(SumPairs(pairs[h][v]), offset);
  }
}
#endif

// scores[v] += the terms of the first `heads` of kHeads heads, whose dot products are dot(h, v).
template <class Dot>
HWY_INLINE void AddHeads(const Dot& dot, const float* weights, size_t heads, VF (&scores)[kKeyVecs]) {
  const DF d;
#pragma GCC unroll 8
  for (size_t h = 0; h < kHeads; ++h) {
    if (h == heads) break;
    const VF weight = hn::Set(d, weights[h]);
#pragma GCC unroll 4
    for (size_t v = 0; v < kKeyVecs; ++v) scores[v] = Fma(hn::Max(dot(h, v), hn::Zero(d)), weight, scores[v]);
  }
}

// The terms of kHeads heads, the first of which is `first` of the tile at h, with rounding after each block.
HWY_INLINE void AddByBlocks(const IndexQuery& query, int64_t h, size_t first, size_t heads,
                            const KeyTile& tile, const uint8_t* next, VF (&scores)[kKeyVecs]) {
  const DF d;
  VF dots[kHeads][kKeyVecs];
  for (auto& head : dots) {
    for (VF& dot : head) dot = hn::Zero(d);
  }
  for (size_t b = 0; b < tile.n_blocks(); ++b) {
    VQuad sums[kHeads][kKeyVecs];
    QuadSums(tile.quads(b), query.codes(h) + (b * kBlockQuads * kHeadTile + first) * 4, 1,
             query.offsets(h) + b * kHeadTile + first, next + b * kKeyVecs * 64, sums);
    const float* factors = query.factors(h) + b * kHeadTile + first;
#pragma GCC unroll 8
    for (size_t i = 0; i < kHeads; ++i) {
      const VF factor = hn::Set(d, factors[i]);
#pragma GCC unroll 4
      for (size_t v = 0; v < kKeyVecs; ++v) {
        const VF key_factor = hn::Load(d, tile.factors(b) + v * kVecLanes);
        dots[i][v] = Fma(hn::Mul(hn::ConvertTo(d, sums[i][v]), key_factor), factor, dots[i][v]);
      }
    }
  }
  AddHeads([&](size_t i, size_t v) HWY_ATTR { return dots[i][v]; }, query.weights(h) + first, heads, scores);
}

#if HWY_TARGET == HWY_AVX3_DL
// The same for heads and keys that are not wide: their sums are exact.
HWY_INLINE void AddFolded(const IndexQuery& query, int64_t h, size_t, size_t heads, const KeyTile& tile,
                          const uint8_t* next, VF (&scores)[kKeyVecs]) {
  static_assert(kHeads == kHeadTile);
  VQuad sums[kHeads][kKeyVecs];
  QuadSums(tile.folded(), query.folded(h), tile.n_blocks(), query.folded_offsets(h), next, sums);
  AddHeads([&](size_t i, size_t v) HWY_ATTR { return hn::ConvertTo(DF(), sums[i][v]); }, query.weights(h),
           heads, scores);
}
#elif MILLRACE_HAVE_BYTE_DOT
// The same for heads and keys that are not wide: keys carry their factors, heads' are multiplied when a
// block's halves of 16 bits are widened. A half is at most 16 * 96 * 12; what the bias adds to it wraps
// around and is taken away again.
HWY_INLINE void AddFolded(const IndexQuery& query, int64_t h, size_t first, size_t heads, const KeyTile& tile,
                          const uint8_t* next, VF (&scores)[kKeyVecs]) {
  const DQuad d;
  VQuad sums[kHeads][kKeyVecs];
  for (auto& head : sums) {
    for (VQuad& sum : head) sum = hn::Zero(d);
  }
  for (size_t b = 0; b < tile.n_blocks(); ++b) {
    const size_t at = b * kHeadTile + first;
    VPair pairs[kHeads][kKeyVecs];
#pragma GCC unroll 8
    for (size_t i = 0; i < kHeads; ++i) {
#pragma GCC unroll 4
      for (size_t v = 0; v < kKeyVecs; ++v)
        pairs[i][v] = hn::BitCast(DPair(), hn::Set(d, query.pair_offsets(h)[at + i]));
    }
    AddPairProducts(tile.folded() + b * kBlockQuads * kQuadBytes,
                    query.codes(h) + (b * kBlockQuads * kHeadTile + first) * 4, next + b * kKeyVecs * 64,
                    pairs);
#pragma GCC unroll 8
    for (size_t i = 0; i < kHeads; ++i) {
      const VPair factor = hn::BitCast(DPair(), hn::Set(d, query.pair_factors(h)[at + i]));
#pragma GCC unroll 4
      for (size_t v = 0; v < kKeyVecs; ++v) sums[i][v] = hn::Add(sums[i][v], MulPairs(pairs[i][v], factor));
    }
  }
  AddHeads([&](size_t i, size_t v) HWY_ATTR { return hn::ConvertTo(DF(), sums[i][v]); },
           query.weights(h) + first, heads, scores);
}
#endif

// scores[0 .. n): those of the first n keys of the tile. Brings `next`, the codes of the tile after it, into
// the first cache, a few lines in every step.
HWY_INLINE void ScoreTile(const IndexQuery& query, const KeyTile& tile, size_t n, const uint8_t* next,
                          float* HWY_RESTRICT scores) {
  const DF d;
  VF sums[kKeyVecs];
  for (VF& sum : sums) sum = hn::Zero(d);
  const auto n_heads = static_cast<size_t>(query.n_heads());
  for (size_t head = 0; head < n_heads; head += kHeads) {
    const auto h = static_cast<int64_t>(head / kHeadTile * kHeadTile);
    const size_t heads = HWY_MIN(n_heads - head, kHeads);
#if MILLRACE_HAVE_BYTE_DOT
    if (!query.wide(h) && !tile.wide()) {
      AddFolded(query, h, head % kHeadTile, heads, tile, next, sums);
      next += tile.n_blocks() * kKeyVecs * 64;
      continue;
    }
#endif
    AddByBlocks(query, h, head % kHeadTile, heads, tile, next, sums);
    next += tile.n_blocks() * kKeyVecs * 64;
  }
  alignas(64) float out[kTileKeys];
#pragma GCC unroll 4
  for (size_t v = 0; v < kKeyVecs; ++v) {
    hn::Store(hn::Mul(sums[v], hn::Load(d, tile.units() + v * kVecLanes)), d, out + v * kVecLanes);
  }
  std::copy_n(out, n, scores);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
