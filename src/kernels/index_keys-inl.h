// Index keys, unpacked into tiles for index_score-inl.h. Included once per instruction set (no #pragma once).

#if defined(MILLRACE_KERNELS_INDEX_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_INDEX_KEYS_INL_H_
#undef MILLRACE_KERNELS_INDEX_KEYS_INL_H_
#else
#define MILLRACE_KERNELS_INDEX_KEYS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/byte_vectors-inl.h"
#include "kernels/dot_tile-inl.h"
#include "kernels/index_score.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

// Where bytes can be multiplied, keys' scales are shifted into them if they fit, so that a whole dot product
// is one integer. The products below take smaller bytes.
inline constexpr size_t kKeyVecs =
    HWY_TARGET == HWY_AVX3_DL ? 3 : 2;  // vectors of keys in a tile, a 32-bit lane each
inline constexpr size_t kTileKeys = kKeyVecs * kQuads;
inline constexpr size_t kBlockQuads = 8;             // a block of 32 channels
inline constexpr size_t kQuadBytes = 4 * kTileKeys;  // of all keys of a tile
inline constexpr size_t kHeadTile = IndexQuery::kTileHeads;
// Up to here the sum of a folded dot product, at most 96 * 96 a channel, is exact as float32.
inline constexpr size_t kMaxFoldedDim = 1024;

// The keys of one tile: rows as in IndexKeys. Rows from n on hold no key.
struct KeyRows {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  size_t n = 0;
};

// Hands out the keys of several runs, a tile at a time: in place where a run is long enough, else collected.
// Either way memory is asked for them while the tile before is at work.
class RowWalk {
 public:
  static size_t BytesFor(size_t dim) { return kTileKeys * (dim / 2 + dim / 32); }

  // `collected` holds BytesFor(dim) bytes.
  RowWalk(std::span<const IndexKeys> runs, int64_t dim, uint8_t* collected)
      : runs_(runs), code_bytes_(dim / 2), n_scales_(dim / 32), collected_(collected) {
    Advance();
  }

  // Valid until Advance. No keys: the end.
  const KeyRows& rows() const { return rows_; }

  void Advance() {
    constexpr auto kKeys = static_cast<int64_t>(kTileKeys);
    if (!runs_.empty() && runs_.front().n - at_ >= kKeys) {
      rows_ = {.codes = runs_.front().codes + at_ * code_bytes_,
               .scales = runs_.front().scales + at_ * n_scales_,
               .n = kTileKeys};
      Skip(kKeys);
    } else {
      Collect();
    }
    Ask();
  }

 private:
  // Asks for what the next Advance takes.
  void Ask() const {
    auto left = static_cast<int64_t>(kTileKeys);
    int64_t at = at_;
    for (size_t r = 0; left > 0 && r < runs_.size(); ++r, at = 0) {
      const int64_t n = std::min(runs_[r].n - at, left);
      AskForLines(runs_[r].codes + at * code_bytes_, n * code_bytes_);
      AskForLines(runs_[r].scales + at * n_scales_, n * n_scales_);
      left -= n;
    }
  }

  // Into the second cache: a tile's lines at once are too many for the first.
  static void AskForLines(const uint8_t* bytes, int64_t n) {
    constexpr int kRead = 0;
    constexpr int kSecondCache = 2;
    for (int64_t i = 0; i < n; i += 64) __builtin_prefetch(bytes + i, kRead, kSecondCache);
  }

  void Skip(int64_t n) {
    at_ += n;
    if (at_ == runs_.front().n) runs_ = runs_.subspan(1), at_ = 0;
  }

  void Collect() {
    constexpr auto kKeys = static_cast<int64_t>(kTileKeys);
    uint8_t* codes = collected_;
    uint8_t* scales = collected_ + kKeys * code_bytes_;
    int64_t n = 0;
    while (n < kKeys && !runs_.empty()) {
      const int64_t from_run = std::min(runs_.front().n - at_, kKeys - n);
      const auto copy = [&](const uint8_t* rows, int64_t bytes, uint8_t* to) {
        std::copy_n(rows + at_ * bytes, from_run * bytes, to + n * bytes);
      };
      copy(runs_.front().codes, code_bytes_, codes);
      copy(runs_.front().scales, n_scales_, scales);
      n += from_run;
      Skip(from_run);
    }
    std::fill(codes + n * code_bytes_, codes + kKeys * code_bytes_, uint8_t{0});
    std::fill(scales + n * n_scales_, scales + kKeys * n_scales_, uint8_t{0});
    rows_ = {.codes = codes, .scales = scales, .n = static_cast<size_t>(n)};
  }

  std::span<const IndexKeys> runs_;
  int64_t at_ = 0;  // in the first run
  int64_t code_bytes_;
  int64_t n_scales_;
  uint8_t* collected_;
  KeyRows rows_;
};

// 16 bytes of each of several rows: block i of the vector is those of row 4 i.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
HWY_INLINE VByte LoadEveryFourth(DByte, const uint8_t* rows, size_t stride) {
  const auto row = [&](size_t i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + i * 4 * stride));
  };
  __m512i all = _mm512_castsi128_si512(row(0));
  all = _mm512_inserti32x4(all, row(1), 1);
  all = _mm512_inserti32x4(all, row(2), 2);
  return VByte{_mm512_inserti32x4(all, row(3), 3)};
}
#else
template <class D>
HWY_INLINE hn::Vec<D> LoadEveryFourth(D d, const uint8_t* rows, size_t stride) {
  if constexpr (hn::MaxLanes(d) == 16) {
    return hn::LoadU(d, rows);
  } else {
    const hn::Half<D> dh;
    return hn::Combine(d, LoadEveryFourth(dh, rows + hn::MaxLanes(dh) / 4 * stride, stride),
                       LoadEveryFourth(dh, rows, stride));
  }
}
#endif

// words[w] = the w-th four bytes of each of kQuads rows, a lane for each.
HWY_INLINE void LoadTransposed(const uint8_t* rows, size_t stride, VByte (&words)[4]) {
  VQuad in[4], out[4];
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i)
    in[i] = hn::BitCast(DQuad(), LoadEveryFourth(DByte(), rows + i * stride, stride));
  TransposeQuads(in, out);
#pragma GCC unroll 4
  for (size_t w = 0; w < 4; ++w) words[w] = hn::BitCast(DByte(), out[w]);
}

#if HWY_TARGET == HWY_AVX3_DL
// By e2m1 code + 16 * shift.
struct FoldedCodes {
  alignas(64) uint8_t bytes[64];
};
inline constexpr FoldedCodes kFolded = [] {
  FoldedCodes folded{};
  for (int code = 0; code < 64; ++code) {
    const int value = kDoubledPlus12[code & 15] - IndexQuery::kBias;
    folded.bytes[code] = static_cast<uint8_t>(value * (1 << (code >> 4)) + IndexQuery::kFoldedBias);
  }
  return folded;
}();

// Unpacks nibbles to twice their e2m1 value, shifted left by a number of its own in each lane, +
// IndexQuery::kFoldedBias: looked up in all 64 at once.
class FoldTable {
 public:
  HWY_INLINE explicit FoldTable(VQuad shift) : table_(hn::Load(DByte(), kFolded.bytes)) {
    alignas(16) static constexpr uint8_t kFirstOfFour[16] = {0, 0, 0, 0, 4,  4,  4,  4,
                                                             8, 8, 8, 8, 12, 12, 12, 12};
    upper_ = hn::TableLookupBytes(hn::BitCast(DByte(), hn::ShiftLeft<4>(shift)),
                                  hn::LoadDup128(DByte(), kFirstOfFour));
  }
  HWY_INLINE void LookUp(VByte word, VByte& even, VByte& odd) const {
    // (word & nibble) | upper, overwriting the word.
    constexpr int kAndOr = 0xEA;
    const __m512i nibble = _mm512_set1_epi8(0x0F);
    const __m512i high =
        _mm512_ternarylogic_epi32(_mm512_srli_epi16(word.raw, 4), nibble, upper_.raw, kAndOr);
    const __m512i low = _mm512_ternarylogic_epi32(word.raw, nibble, upper_.raw, kAndOr);
    even = VByte{_mm512_permutexvar_epi8(low, table_.raw)};
    odd = VByte{_mm512_permutexvar_epi8(high, table_.raw)};
  }

 private:
  VByte table_;
  VByte upper_;
};
#elif MILLRACE_HAVE_BYTE_DOT
// The same: looked up in 16 and multiplied. Biased values, at most 24, stay in their bytes.
class FoldTable {
 public:
  HWY_INLINE explicit FoldTable(VQuad shift) : table_(hn::LoadDup128(DByte(), kDoubledPlus12)) {
    const DQuad dq;
    const VQuad power = hn::Shl(hn::Set(dq, 1), shift);
    factor_ = hn::BitCast(DPair(), hn::Or(power, hn::ShiftLeft<16>(power)));
    const VQuad bias =
        hn::Sub(hn::Set(dq, IndexQuery::kFoldedBias), hn::Shl(hn::Set(dq, IndexQuery::kBias), shift));
    const VQuad two = hn::Or(bias, hn::ShiftLeft<8>(bias));
    bias_ = hn::BitCast(DByte(), hn::Or(two, hn::ShiftLeft<16>(two)));
  }
  HWY_INLINE void LookUp(VByte word, VByte& even, VByte& odd) const {
    even = Fold(hn::TableLookupBytes(table_, LowNibbles(word)));
    odd = Fold(hn::TableLookupBytes(table_, HighNibbles(word)));
  }

 private:
  HWY_INLINE VByte Fold(VByte biased) const {
    const VPair shifted = hn::Mul(hn::BitCast(DPair(), biased), factor_);
    return hn::Add(hn::BitCast(DByte(), shifted), bias_);
  }

  VByte table_;
  VPair factor_;
  VByte bias_;
};
#endif

// The keys of a tile, unpacked to a lane each: quads of [kTileKeys, 4] unsigned bytes in the order of
// IndexQuery.
class KeyTile {
 public:
  static size_t BytesFor(size_t dim) { return kTileKeys * (2 * dim + (dim / 32 + 1) * sizeof(float)); }

  // `memory` holds BytesFor(dim) bytes and is aligned to 64.
  KeyTile(uint8_t* memory, size_t dim)
      : n_blocks_(dim / 32),
        quads_(memory),
        folded_(quads_ + kTileKeys * dim),
        factors_(reinterpret_cast<float*>(folded_ + kTileKeys * dim)),
        units_(factors_ + n_blocks_ * kTileKeys) {}

  void Load(const KeyRows& rows, bool for_wide_query) {
    // The released model's shape as a constant.
    if (n_blocks_ == 4) {
      LoadBlocks(rows, 4, for_wide_query);
    } else {
      LoadBlocks(rows, n_blocks_, for_wide_query);
    }
  }

  // Twice the e2m1 values + IndexQuery::kBias.
  const uint8_t* quads(size_t block) const { return quads_ + block * kBlockQuads * kQuadBytes; }
  // The same, each block shifted left by kMaxFold - (largest exponent - its exponent), +
  // IndexQuery::kFoldedBias. Meaningless when wide().
  const uint8_t* folded() const { return folded_; }
  // 2^(kMaxFold + exponent - largest exponent) of the block, [kTileKeys].
  const float* factors(size_t block) const { return factors_ + block * kTileKeys; }
  // 2^(largest exponent), [kTileKeys].
  const float* units() const { return units_; }
  // Whether the exponents of some key differ by more than kMaxFold, or its folded sums could be too long.
  bool wide() const { return wide_; }
  size_t n_blocks() const { return n_blocks_; }

 private:
  HWY_INLINE void LoadBlocks(const KeyRows& rows, size_t n_blocks, bool for_wide_query) {
    wide_ = n_blocks * 32 > kMaxFoldedDim;
    for (size_t v = 0; v < kKeyVecs; ++v) LoadScales(rows.scales + v * kQuads * n_blocks, n_blocks, v);
    const size_t vector_bytes = kQuads * n_blocks * 16;
    if (!MILLRACE_HAVE_BYTE_DOT || wide_ || for_wide_query) {
      for (size_t v = 0; v < kKeyVecs; ++v) Unpack(rows.codes + v * vector_bytes, n_blocks, v);
    }
#if MILLRACE_HAVE_BYTE_DOT
    if (!wide_) {
      for (size_t v = 0; v < kKeyVecs; ++v) UnpackFolded(rows.codes + v * vector_bytes, n_blocks, v);
    }
#endif
  }

  // Factors and units of vector v, whose rows are at `rows`.
  HWY_INLINE void LoadScales(const uint8_t* rows, size_t n_blocks, size_t v) {
    const DQuad d;
    if (n_blocks == 4) {
      const VQuad four = hn::BitCast(d, hn::LoadU(DByte(), rows));
      const VQuad byte = hn::Set(d, 0xFF);
      const VQuad codes[4] = {hn::And(four, byte), hn::And(hn::ShiftRight<8>(four), byte),
                              hn::And(hn::ShiftRight<16>(four), byte),
                              hn::And(hn::ShiftRight<24>(four), byte)};
      SetScales([&](size_t b) HWY_ATTR { return codes[b]; }, 4, v);
      return;
    }
    // The codes stand in the factors' place until these are known.
    auto* codes = reinterpret_cast<int32_t*>(factors_) + v * kQuads;
    for (size_t b = 0; b < n_blocks; ++b) {
      for (size_t j = 0; j < kQuads; ++j) codes[b * kTileKeys + j] = rows[j * n_blocks + b];
    }
    SetScales([&](size_t b) HWY_ATTR { return hn::Load(d, codes + b * kTileKeys); }, n_blocks, v);
  }

  // The same from the scale codes of n blocks, code(b).
  template <class Code>
  HWY_INLINE void SetScales(const Code& code, size_t n, size_t v) {
    const DQuad d;
    const DF df;
    VQuad largest = code(0);
    VQuad smallest = largest;
#pragma GCC unroll 4
    for (size_t b = 1; b < n; ++b) {
      largest = hn::Max(largest, code(b));
      smallest = hn::Min(smallest, code(b));
    }
#pragma GCC unroll 4
    for (size_t b = 0; b < n; ++b) {
      const VQuad exponent = hn::Add(hn::Sub(code(b), largest), hn::Set(d, IndexQuery::kMaxFold + 127));
      hn::Store(hn::BitCast(df, hn::ShiftLeft<23>(hn::Max(exponent, hn::Zero(d)))), df,
                factors_ + b * kTileKeys + v * kQuads);
    }
    const auto spread = hn::Sub(largest, smallest);
    wide_ |= !hn::AllFalse(d, hn::Gt(spread, hn::Set(d, IndexQuery::kMaxFold)));
    // Code 0 is 2^-127, 255 is NaN: codecs.h.
    VQuad unit = hn::ShiftLeft<23>(largest);
    unit = hn::IfThenElse(hn::Eq(largest, hn::Zero(d)), hn::Set(d, 0x00400000), unit);
    unit = hn::IfThenElse(hn::Eq(largest, hn::Set(d, 255)), hn::Set(d, 0x7FC00000), unit);
    hn::Store(hn::BitCast(df, unit), df, units_ + v * kQuads);
  }

  // Where the quads of the first block of vector v go.
  static HWY_INLINE uint8_t* VectorIn(uint8_t* quads, size_t v) {
    return quads + v * 4 * kQuads;
  }

  HWY_INLINE void Unpack(const uint8_t* rows, size_t n_blocks, size_t v) const {
    const DByte d;
    const VByte table = hn::LoadDup128(d, kDoubledPlus12);
    uint8_t* HWY_RESTRICT out = VectorIn(quads_, v);
    for (size_t b = 0; b < n_blocks; ++b) {
      VByte words[4];
      LoadTransposed(rows + 16 * b, 16 * n_blocks, words);
#pragma GCC unroll 4
      for (size_t w = 0; w < 4; ++w, out += 2 * kQuadBytes) {
        hn::Store(hn::TableLookupBytes(table, LowNibbles(words[w])), d, out);
        hn::Store(hn::TableLookupBytes(table, HighNibbles(words[w])), d, out + kQuadBytes);
      }
    }
  }

#if MILLRACE_HAVE_BYTE_DOT
  HWY_INLINE void UnpackFolded(const uint8_t* rows, size_t n_blocks, size_t v) const {
    const DByte d;
    const DQuad dq;
    uint8_t* HWY_RESTRICT out = VectorIn(folded_, v);
    const float* HWY_RESTRICT factors = factors_ + v * kQuads;
    for (size_t b = 0; b < n_blocks; ++b) {
      // The exponent of a factor is how far its key's bytes are shifted.
      const VQuad factor = hn::BitCast(dq, hn::Load(DF(), factors + b * kTileKeys));
      const FoldTable table(hn::Sub(hn::ShiftRight<23>(factor), hn::Set(dq, 127)));
      VByte words[4];
      LoadTransposed(rows + 16 * b, 16 * n_blocks, words);
#pragma GCC unroll 4
      for (size_t w = 0; w < 4; ++w, out += 2 * kQuadBytes) {
        VByte even;
        VByte odd;
        table.LookUp(words[w], even, odd);
        hn::Store(even, d, out);
        hn::Store(odd, d, out + kQuadBytes);
      }
    }
  }
#endif

  size_t n_blocks_;
  uint8_t* quads_;
  uint8_t* folded_;
  float* factors_;
  float* units_;
  bool wide_ = false;
};

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
