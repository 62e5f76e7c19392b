#include "rig/matrix_copies.h"

#include <array>
#include <cstring>
#include <random>

#include "base/codecs.h"
#include "base/units.h"
#include "kernels/matmul_rounded.h"

namespace millrace::rig {
namespace {

using kernels::WeightFormat;
using kernels::WeightMatrix;

constexpr int64_t kBeyondCaches = static_cast<int64_t>(256 * kMiB);
constexpr size_t kDraws = 4096;

struct Sizes {
  size_t data = 0;
  size_t scales = 0;
};

Sizes SizesOf(WeightFormat format, int64_t rows, int64_t cols) {
  const auto n = static_cast<size_t>(rows * cols);
  switch (format) {
    case WeightFormat::kF32:
      return {.data = 4 * n};
    case WeightFormat::kBf16:
      return {.data = 2 * n};
    case WeightFormat::kFp8Tile32:
      return {.data = n, .scales = static_cast<size_t>((rows + 31) / 32 * (cols / 32))};
    case WeightFormat::kFp4Row32:
      break;
  }
  return {.data = n / 2, .scales = n / 32};
}

// Four bytes of weights drawn from a normal distribution that uses the format's range as a checkpoint does.
std::array<uint32_t, kDraws> DrawWords(WeightFormat format) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::array<uint32_t, kDraws> words{};
  for (uint32_t& word : words) {
    switch (format) {
      case WeightFormat::kF32: {
        const float value = normal(random);
        std::memcpy(&word, &value, sizeof(word));
        break;
      }
      case WeightFormat::kBf16:
        for (int i = 0; i < 2; ++i) word = word << 16 | FloatToBf16(normal(random));
        break;
      case WeightFormat::kFp8Tile32:  // the largest of a tile's 1024 is 448
        for (int i = 0; i < 4; ++i) word = word << 8 | FloatToE4m3(130.0f * normal(random));
        break;
      case WeightFormat::kFp4Row32:  // the largest of a block's 32 is 6
        for (int i = 0; i < 8; ++i) word = word << 4 | FloatToE2m1(2.7f * normal(random));
        break;
    }
  }
  return words;
}

void Fill(std::byte* out, size_t n, const std::array<uint32_t, kDraws>& words, uint64_t seed) {
  std::mt19937_64 random(seed);
  uint64_t bits = 0;
  for (size_t i = 0; i < n / 4; ++i) {
    if (i % 5 == 0) bits = random();
    std::memcpy(out + 4 * i, &words[bits % kDraws], 4);
    bits /= kDraws;
  }
}

}  // namespace

std::string_view FormatName(WeightFormat format) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "fp8", "fp4"};
  return kNames[static_cast<size_t>(format)];
}

int64_t StoredBytes(const WeightMatrix& a) {
  const Sizes sizes = SizesOf(a.format, a.rows, a.cols);
  return static_cast<int64_t>(sizes.data + sizes.scales);
}

int64_t CopiesBeyondCaches(WeightFormat format, int64_t rows, int64_t cols) {
  const Sizes sizes = SizesOf(format, rows, cols);
  return kBeyondCaches / static_cast<int64_t>(sizes.data + sizes.scales) + 1;
}

MatrixCopies::MatrixCopies(WeightFormat format, int64_t rows, int64_t cols, int64_t count, Team& team)
    : memory_(static_cast<size_t>(count) * (RoundUp(SizesOf(format, rows, cols).data, 64) +
                                            RoundUp(SizesOf(format, rows, cols).scales, 64))) {
  const Sizes sizes = SizesOf(format, rows, cols);
  std::byte* at = memory_.data();
  for (int64_t i = 0; i < count; ++i) {
    std::byte* scales = at + RoundUp(sizes.data, 64);
    views_.push_back({.format = format, .rows = rows, .cols = cols, .data = at, .scales = scales});
    at = scales + RoundUp(sizes.scales, 64);
  }
  const std::array<uint32_t, kDraws> words = DrawWords(format);
  team.pool().ParallelFor(static_cast<size_t>(count), [&](size_t i, int) {
    auto* data = const_cast<std::byte*>(views_[i].data);  // of memory_
    Fill(data, sizes.data, words, i + 1);
    auto* scales = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(views_[i].scales));
    for (size_t s = 0; s < sizes.scales; ++s) scales[s] = static_cast<uint8_t>(117 + s * 7 % 4);
    views_[i].ordinary = IsOrdinary(views_[i]);
    views_[i].rounds_inputs = CanRoundInputs(views_[i]);
  });
}

const WeightMatrix& MatrixCopies::Next() {
  const WeightMatrix& view = views_[static_cast<size_t>(next_)];
  next_ = (next_ + 1) % count();
  return view;
}

kernels::AlignedVector<float> RandomActivations(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  kernels::AlignedVector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace millrace::rig
