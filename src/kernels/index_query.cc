#include "kernels/index_query.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/codecs.h"
#include "kernels/index_score_ref.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kBlock = 32;

constexpr std::array<int8_t, 16> kTwiceE2m1 = [] {
  std::array<int8_t, 16> values{};
  for (size_t code = 0; code < 16; ++code) {
    values[code] = static_cast<int8_t>(2 * E2m1ToFloat(static_cast<uint8_t>(code)));
  }
  return values;
}();

int64_t PaddedHeads(int64_t n_heads) {
  return (n_heads + IndexQuery::kTileHeads - 1) / IndexQuery::kTileHeads * IndexQuery::kTileHeads;
}

// Two int16 as one element.
int32_t Pair(int low, int high) {
  return static_cast<int32_t>(static_cast<uint32_t>(high) << 16 | (static_cast<uint32_t>(low) & 0xFFFF));
}

}  // namespace

size_t IndexQuery::Place(std::byte* memory, int64_t n_heads, int64_t dim) {
  n_heads_ = n_heads;
  dim_ = dim;
  const int64_t heads = PaddedHeads(n_heads);
  const int64_t blocks = heads * (dim / kBlock);
  size_t used = 0;
  const auto take = [&]<typename T>(T*& array, int64_t n) {
    array = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + used);
    used += (static_cast<size_t>(n) * sizeof(T) + 63) / 64 * 64;
  };
  take(codes_, heads * dim);
  take(folded_, heads * dim);
  take(offsets_, blocks);
  take(folded_offsets_, heads);
  take(pair_offsets_, blocks);
  take(pair_factors_, blocks);
  take(factors_, blocks);
  take(weights_, heads);
  take(wide_, heads / kTileHeads);
  return used;
}

size_t IndexQuery::BytesFor(int64_t n_heads, int64_t dim) {
  return IndexQuery().Place(nullptr, n_heads, dim);
}

IndexQuery::IndexQuery(std::span<std::byte> memory, int64_t n_heads, int64_t dim) : memory_(memory) {
  MILLRACE_CHECK(dim % kBlock == 0, "index_head_dim is checked when the layer plan is built");
  MILLRACE_CHECK(memory.size() >= Place(memory.data(), n_heads, dim),
                 "memory of an index query smaller than planned");
}

void IndexQuery::Assign(const uint8_t* codes, const uint8_t* scales, const float* weights, float scale) {
  std::fill(memory_.begin(), memory_.end(), std::byte{0});
  const int64_t n_blocks = dim_ / kBlock;
  for (int64_t h = 0; h < n_heads_; ++h, codes += dim_ / 2, scales += n_blocks) {
    const uint8_t largest = *std::max_element(scales, scales + n_blocks);
    weights_[h] = ref::IndexHeadWeight(weights[h], scale, largest);
    for (int64_t b = 0; b < n_blocks; ++b) AssignBlock(h, b, codes + b * kBlock / 2, scales[b], largest);
  }
}

void IndexQuery::AssignBlock(int64_t h, int64_t b, const uint8_t* codes, uint8_t scale, uint8_t largest) {
  const int64_t tile = h / kTileHeads;
  const int64_t lane = h % kTileHeads;
  if (largest - scale > kMaxFold) wide_[tile] = true;
  const int factor = 1 << std::max(kMaxFold - (largest - scale), 0);
  int sums[2] = {0, 0};  // of bytes 0 and 1 of the quads, and of 2 and 3
  int64_t at = (tile * dim_ + b * kBlock) * kTileHeads + lane * 4;
  for (int64_t word = 0; word < kBlock / 8; ++word, codes += 4) {
    for (const int shift : {0, 4}) {
      for (int64_t i = 0; i < 4; ++i) {
        const int8_t value = kTwiceE2m1[codes[i] >> shift & 15];
        codes_[at + i] = value;
        folded_[at + i] = static_cast<int8_t>(value * factor);
        sums[i / 2] += value;
      }
      at += 4 * kTileHeads;
    }
  }
  const int64_t block = (tile * (dim_ / kBlock) + b) * kTileHeads + lane;
  offsets_[block] = -kBias * (sums[0] + sums[1]);
  folded_offsets_[h] -= kFoldedBias * (sums[0] + sums[1]) * factor;
  pair_offsets_[block] = Pair(-kFoldedBias * sums[0], -kFoldedBias * sums[1]);
  pair_factors_[block] = Pair(factor, factor);
  factors_[block] = ref::IndexBlockFactor(scale, largest);
}

}  // namespace millrace::kernels
