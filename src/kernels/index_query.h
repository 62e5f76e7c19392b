#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace::kernels {

// All heads of one token's index query, as IndexScores reads them: codes widened to bytes once, so that every
// key finds them ready. Lives in the caller's memory, which outlives it; one thread writes, then any may
// read.
//
// Heads come in tiles of kTileHeads, the last one padded with zeros. Per tile, a "quad" is the bytes of four
// channels for each head of the tile: [quads, kTileHeads, 4]. Quad order is that in which the nibbles of a
// key unpack: of channels 8 w .. 8 w + 7 first the even ones, then the odd ones.
class IndexQuery {
 public:
  static constexpr int64_t kTileHeads = 8;
  // How many powers of two the scales of one head (or key) may differ by and still be shifted into its bytes.
  static constexpr int kMaxFold = 3;

  // Added to keys' bytes, twice an e2m1 value each, so that they are not negative; the same for folded ones.
  static constexpr int kBias = 12;
  static constexpr int kFoldedBias = kBias << kMaxFold;
  // Where channel i of a block of 32 stands among the bytes of the block's quads.
  static constexpr int64_t PlaceOf(int64_t i) { return i / 8 * 8 + i % 2 * 4 + i % 8 / 2; }
  // Bytes of memory for a query of this shape; dim is a multiple of 32.
  static size_t BytesFor(int64_t n_heads, int64_t dim);

  IndexQuery() = default;
  // `memory` holds BytesFor(n_heads, dim) bytes and is aligned to 64.
  IndexQuery(std::span<std::byte> memory, int64_t n_heads, int64_t dim);

  // Takes in Q4a codes [n_heads, dim / 2] and scales [n_heads, dim / 32]. `weights` [n_heads] and `scale` are
  // those of IndexScores.
  void Assign(const uint8_t* codes, const uint8_t* scales, const float* weights, float scale);

  int64_t n_heads() const { return n_heads_; }
  int64_t dim() const { return dim_; }

  // The arrays below are those of the tile that starts at head h, a multiple of kTileHeads.

  // Twice the e2m1 values, [quads, kTileHeads, 4].
  const int8_t* codes(int64_t h) const { return codes_ + h * dim_; }
  // The same, each block shifted left by kMaxFold - (largest exponent - its exponent). Meaningless when a
  // head of the tile is wide.
  const int8_t* folded(int64_t h) const { return folded_ + h * dim_; }
  // What makes sums over unsigned keys (key + kBias) signed again: -kBias * the sum of a block of codes(),
  // [dim / 32, kTileHeads]; -kFoldedBias * the sum of folded() over all channels, [kTileHeads].
  const int32_t* offsets(int64_t h) const { return offsets_ + h * (dim_ / 32); }
  const int32_t* folded_offsets(int64_t h) const { return folded_offsets_ + h; }
  // For sums in halves of 16 bits, two int16 in each element of [dim / 32, kTileHeads]: -kFoldedBias * the
  // sum of a block of codes() over bytes 0 and 1 of its quads, and over bytes 2 and 3; factors() twice,
  // meaningless when a head of the tile is wide.
  const int32_t* pair_offsets(int64_t h) const { return pair_offsets_ + h * (dim_ / 32); }
  const int32_t* pair_factors(int64_t h) const { return pair_factors_ + h * (dim_ / 32); }
  // 2^(kMaxFold + exponent - largest exponent) of each block, [dim / 32, kTileHeads].
  const float* factors(int64_t h) const { return factors_ + h * (dim_ / 32); }
  // What a head's sum is multiplied by, [kTileHeads].
  const float* weights(int64_t h) const { return weights_ + h; }
  // Whether the exponents of some head of the tile differ by more than kMaxFold.
  bool wide(int64_t h) const { return wide_[h / kTileHeads]; }

 private:
  // Places the arrays in `memory` and returns how many bytes they take; only counts without memory.
  size_t Place(std::byte* memory, int64_t n_heads, int64_t dim);
  void AssignBlock(int64_t h, int64_t b, const uint8_t* codes, uint8_t scale, uint8_t largest);

  std::span<std::byte> memory_;
  int64_t n_heads_ = 0;
  int64_t dim_ = 0;
  int8_t* codes_ = nullptr;
  int8_t* folded_ = nullptr;
  int32_t* offsets_ = nullptr;
  int32_t* folded_offsets_ = nullptr;
  int32_t* pair_offsets_ = nullptr;
  int32_t* pair_factors_ = nullptr;
  float* factors_ = nullptr;
  float* weights_ = nullptr;
  bool* wide_ = nullptr;
};

}  // namespace millrace::kernels
