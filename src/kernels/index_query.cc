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

// Hands out arrays from one block of memory, or only counts.
class Cutter {
 public:
  explicit Cutter(std::byte* memory) : memory_(memory) {}
  template <typename T>
  T* Take(int64_t n) {
    std::byte* at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (static_cast<size_t>(n) * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }
  size_t used() const { return used_; }

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

}  // namespace

size_t IndexQuery::BytesFor(int64_t n_heads, int64_t dim) {
  const int64_t heads = PaddedHeads(n_heads);
  Cutter count(nullptr);
  count.Take<int8_t>(heads * dim);
  count.Take<int8_t>(heads * dim);
  count.Take<int32_t>(heads * (dim / kBlock));
  count.Take<int32_t>(heads);
  count.Take<float>(heads * (dim / kBlock));
  count.Take<float>(heads);
  count.Take<bool>(heads / kTileHeads);
  return count.used();
}

IndexQuery::IndexQuery(std::span<std::byte> memory, int64_t n_heads, int64_t dim)
    : n_heads_(n_heads), dim_(dim) {
  MILLRACE_CHECK(dim % kBlock == 0, "index_head_dim is checked when the layer plan is built");
  MILLRACE_CHECK(memory.size() >= BytesFor(n_heads, dim), "memory of an index query smaller than planned");
  const int64_t heads = PaddedHeads(n_heads);
  Cutter cut(memory.data());
  codes_ = cut.Take<int8_t>(heads * dim);
  folded_ = cut.Take<int8_t>(heads * dim);
  offsets_ = cut.Take<int32_t>(heads * (dim / kBlock));
  folded_offsets_ = cut.Take<int32_t>(heads);
  factors_ = cut.Take<float>(heads * (dim / kBlock));
  weights_ = cut.Take<float>(heads);
  wide_ = cut.Take<bool>(heads / kTileHeads);
}

void IndexQuery::Assign(const uint8_t* codes, const uint8_t* scales, const float* weights, float scale) {
  const int64_t n_blocks = dim_ / kBlock;
  const int64_t heads = PaddedHeads(n_heads_);
  std::fill_n(codes_, heads * dim_, int8_t{0});
  std::fill_n(folded_, heads * dim_, int8_t{0});
  std::fill_n(offsets_, heads * n_blocks, 0);
  std::fill_n(folded_offsets_, heads, 0);
  std::fill_n(factors_, heads * n_blocks, 0.0f);
  std::fill_n(weights_, heads, 0.0f);
  std::fill_n(wide_, heads / kTileHeads, false);
  for (int64_t h = 0; h < n_heads_; ++h, codes += dim_ / 2, scales += n_blocks) {
    const int64_t tile = h / kTileHeads * kTileHeads;
    const int64_t lane = h % kTileHeads;
    const uint8_t largest = *std::max_element(scales, scales + n_blocks);
    weights_[h] = ref::IndexHeadWeight(weights[h], scale, largest);
    for (int64_t b = 0; b < n_blocks; ++b) {
      factors_[tile * n_blocks + b * kTileHeads + lane] = ref::IndexBlockFactor(scales[b], largest);
      if (largest - scales[b] > kMaxFold) wide_[h / kTileHeads] = true;
      const int fold = std::max(kMaxFold - (largest - scales[b]), 0);
      for (int64_t i = 0; i < kBlock; ++i) {
        const uint8_t pair = codes[(b * kBlock + i) / 2];
        const int8_t value = kTwiceE2m1[i % 2 == 0 ? pair & 15 : pair >> 4];
        const auto shifted = static_cast<int8_t>(value * (1 << fold));
        const int64_t place = b * kBlock + Place(i);
        const int64_t at = tile * dim_ + place / 4 * 4 * kTileHeads + lane * 4 + place % 4;
        codes_[at] = value;
        folded_[at] = shifted;
        offsets_[tile * n_blocks + b * kTileHeads + lane] -= kBias * value;
        folded_offsets_[h] -= kFoldedBias * shifted;
      }
    }
  }
}

}  // namespace millrace::kernels
