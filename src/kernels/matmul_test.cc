#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/matmul_ref.h"
#include "kernels/testing_golden.h"
#include "kernels/testing_targets.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

constexpr std::array kFormats = {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kFp8Tile32,
                                 WeightFormat::kFp4Row32};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::byte kE4m3Nan{0x7F};

// A matrix that owns its bytes; `skew` elements of padding move the data off every vector boundary.
class OwnedMatrix {
 public:
  OwnedMatrix(WeightFormat format, int64_t rows, int64_t cols, Random& random, size_t skew = 0) {
    view_ = {.format = format, .rows = rows, .cols = cols};
    const auto n = static_cast<size_t>(rows * cols);
    const auto blocks = static_cast<size_t>(cols / 32);
    size_t data_bytes = n;
    size_t n_scales = 0;
    if (format == WeightFormat::kF32) data_bytes = n * 4;
    if (format == WeightFormat::kBf16) data_bytes = n * 2;
    if (format == WeightFormat::kFp8Tile32) n_scales = static_cast<size_t>((rows + 31) / 32) * blocks;
    if (format == WeightFormat::kFp4Row32) {
      data_bytes = n / 2;
      n_scales = static_cast<size_t>(rows) * blocks;
    }
    skew *= format == WeightFormat::kF32 ? 4 : format == WeightFormat::kBf16 ? 2 : 1;
    bytes_ = RandomBytes(random, skew + data_bytes);
    scales_ = RandomBytes(random, n_scales);
    view_.data = bytes_.data() + skew;
    view_.scales = scales_.data();
    MakeFinite(skew, data_bytes, random);
  }

  const WeightMatrix& view() const { return view_; }
  std::vector<std::byte>& scales() { return scales_; }
  std::byte& data(size_t i) { return bytes_[static_cast<size_t>(view_.data - bytes_.data()) + i]; }

 private:
  // Random codes whose values are finite and near one, so that sums meet neither infinities nor NaN.
  void MakeFinite(size_t skew, size_t data_bytes, Random& random) {
    for (std::byte& scale : scales_) scale = static_cast<std::byte>(120 + std::to_integer<int>(scale) % 14);
    if (view_.format == WeightFormat::kFp8Tile32) {
      for (std::byte& code : bytes_) {
        if ((code & kE4m3Nan) == kE4m3Nan) code = std::byte{0x80};
      }
    } else if (view_.format == WeightFormat::kF32) {
      const std::vector<float> values = RandomFloats(random, data_bytes / 4);
      std::memcpy(bytes_.data() + skew, values.data(), data_bytes);
    } else if (view_.format == WeightFormat::kBf16) {
      for (size_t i = 0; i < data_bytes; i += 2) {
        const uint16_t code = FloatToBf16(RandomFloats(random, 1)[0]);
        std::memcpy(bytes_.data() + skew + i, &code, 2);
      }
    }
  }

  WeightMatrix view_;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> scales_;
};

std::vector<float> Scratch(const WeightMatrix& a) {
  return std::vector<float>(MatMulScratchFloats(a.cols));
}

// All rows times all tokens: [n_tokens, rows]; a matrix that is ordinary also marked as such.
std::vector<float> Multiply(const WeightMatrix& a, InputRows x, int64_t n_tokens) {
  std::vector<float> y(static_cast<size_t>(n_tokens * a.rows), -1);
  std::vector<float> scratch = Scratch(a);
  MatMul(a, 0, a.rows, x, n_tokens, y.data(), a.rows, scratch);
  if (!a.ordinary && IsOrdinary(a)) {
    WeightMatrix marked = a;
    marked.ordinary = true;
    ExpectSameBits(Multiply(marked, x, n_tokens), y);
  }
  return y;
}

std::vector<float> Reference(const WeightMatrix& a, InputRows x, int64_t n_tokens) {
  std::vector<float> y;
  for (int64_t t = 0; t < n_tokens; ++t) {
    const float* token = x.base + (x.index != nullptr ? x.index[t] : t) * x.stride;
    for (int64_t row = 0; row < a.rows; ++row) y.push_back(ref::RowDot(a, row, token));
  }
  return y;
}

TEST(MatMul, EqualsTheReferenceForEveryShape) {
  Random random(1);
  for (const WeightFormat format : kFormats) {
    for (const int64_t cols : {32, 64, 96, 160, 544}) {
      for (const int64_t rows : {1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33}) {
        const OwnedMatrix a(format, rows, cols, random);
        const std::vector<float> x = RandomFloats(random, static_cast<size_t>(9 * cols));
        const InputRows input{.base = x.data(), .stride = cols};
        const std::vector<float> expected = Reference(a.view(), input, 9);
        ForEachTarget([&] {
          for (int64_t n_tokens = 1; n_tokens <= 9; ++n_tokens) {
            SCOPED_TRACE(testing::Message() << "format " << static_cast<int>(format) << " [" << rows << ", "
                                            << cols << "] x " << n_tokens);
            const auto n = static_cast<size_t>(n_tokens * rows);
            ASSERT_NO_FATAL_FAILURE(
                ExpectSameBits(Multiply(a.view(), input, n_tokens), std::span(expected).first(n)));
          }
        });
      }
    }
  }
}

TEST(MatMul, OnlyNanAndScalesThatWouldOverflowAreExtraordinary) {
  Random random(23);
  for (const int64_t cols : {32, 160}) {
    OwnedMatrix a(WeightFormat::kFp8Tile32, 40, cols, random);
    ForEachTarget([&] {
      ASSERT_TRUE(IsOrdinary(a.view()));
      for (const size_t at :
           {size_t{0}, static_cast<size_t>(cols) + 31, static_cast<size_t>(40 * cols) - 1}) {
        for (const int code : {0x7F, 0xFF, 0x7E, 0xFE, 0x80}) {
          const std::byte kept = std::exchange(a.data(at), static_cast<std::byte>(code));
          EXPECT_EQ(IsOrdinary(a.view()), (code & 0x7F) != 0x7F) << code << " at " << at;
          a.data(at) = kept;
        }
      }
      for (const int scale : {0, 246, 247, 255}) {
        const std::byte kept = std::exchange(a.scales().back(), static_cast<std::byte>(scale));
        EXPECT_EQ(IsOrdinary(a.view()), scale <= 246) << scale;
        a.scales().back() = kept;
      }
    });
  }
}

// More rows, columns and tokens than are worked on at a time, and a ragged rest of each.
TEST(MatMul, EqualsTheReferenceAcrossStripsChunksAndTokenBlocks) {
  Random random(11);
  constexpr int64_t kRows = kBandRows + kStripRows + 3;
  constexpr int64_t kCols = 2 * static_cast<int64_t>(kChunkCols) + 96;
  constexpr int64_t kTokens = 2 * kTokenBlock + 5;
  for (const WeightFormat format : kFormats) {
    const OwnedMatrix a(format, kRows, kCols, random);
    const std::vector<float> x = RandomFloats(random, kTokens * kCols);
    const InputRows input{.base = x.data(), .stride = kCols};
    const std::vector<float> expected = Reference(a.view(), input, kTokens);
    ForEachTarget([&] {
      for (const int64_t n_tokens : {int64_t{1}, int64_t{5}, kTokenBlock, kTokenBlock + 1, kTokens}) {
        const auto n = static_cast<size_t>(n_tokens * kRows);
        ASSERT_NO_FATAL_FAILURE(
            ExpectSameBits(Multiply(a.view(), input, n_tokens), std::span(expected).first(n)))
            << n_tokens << " tokens";
      }
    });
  }
}

TEST(MatMul, RowRangesAndStridesWriteOnlyTheirOwnResults) {
  Random random(2);
  constexpr int64_t kRows = 41;
  constexpr int64_t kCols = 96;
  constexpr int64_t kStride = 50;
  constexpr int64_t kTokens = 7;
  for (const WeightFormat format : kFormats) {
    const OwnedMatrix a(format, kRows, kCols, random);
    const std::vector<float> x = RandomFloats(random, kTokens * kCols);
    const InputRows input{.base = x.data(), .stride = kCols};
    const std::vector<float> expected = Reference(a.view(), input, kTokens);
    std::vector<float> scratch = Scratch(a.view());
    ForEachTarget([&] {
      for (int64_t begin = 0; begin <= kRows; begin += 3) {
        for (int64_t end = begin; end <= kRows; end += 5) {
          std::vector<float> y(kTokens * kStride, 123.0f);
          MatMul(a.view(), begin, end, input, kTokens, y.data(), kStride, scratch);
          std::vector<float> want(y.size(), 123.0f);
          for (int64_t t = 0; t < kTokens; ++t) {
            for (int64_t o = begin; o < end; ++o)
              want[static_cast<size_t>(t * kStride + o)] = expected[static_cast<size_t>(t * kRows + o)];
          }
          ASSERT_NO_FATAL_FAILURE(ExpectSameBits(y, want)) << begin << " .. " << end;
        }
      }
    });
  }
}

TEST(MatMul, TokenAloneEqualsTokenInBatchThroughAnIndex) {
  Random random(3);
  constexpr int64_t kCols = 160;
  constexpr int64_t kStride = 171;
  constexpr int64_t kRows = 37;
  const std::vector<int32_t> index = {5, 0, 0, 11, 3, 7, 1, 2, 10, 4, 4, 9, 8};
  for (const WeightFormat format : kFormats) {
    const OwnedMatrix a(format, kRows, kCols, random);
    const std::vector<float> x = RandomFloats(random, 12 * kStride);
    const auto n_tokens = static_cast<int64_t>(index.size());
    ForEachTarget([&] {
      const std::vector<float> batch =
          Multiply(a.view(), {.base = x.data(), .stride = kStride, .index = index.data()}, n_tokens);
      for (size_t t = 0; t < index.size(); ++t) {
        const std::vector<float> alone =
            Multiply(a.view(), {.base = x.data() + index[t] * kStride, .stride = kStride}, 1);
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(std::span(batch).subspan(t * kRows, kRows), alone));
      }
    });
  }
}

TEST(MatMul, StartsNeedNoMoreThanElementAlignment) {
  Random random(4);
  for (const WeightFormat format : kFormats) {
    for (size_t skew = 1; skew < 17; skew += 3) {
      const OwnedMatrix a(format, 19, 64, random, skew);
      const std::vector<float> x = RandomFloats(random, skew + 5 * 64);
      const InputRows input{.base = x.data() + skew, .stride = 64};
      const std::vector<float> expected = Reference(a.view(), input, 5);
      ForEachTarget([&] {
        std::vector<float> y(skew + 5 * 19);
        std::vector<float> scratch(skew + MatMulScratchFloats(64));
        MatMul(a.view(), 0, 19, input, 5, y.data() + skew, 19, std::span(scratch).subspan(skew));
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(std::span(y).subspan(skew), expected));
      });
    }
  }
}

// Scales up to 246 leave a matrix ordinary, beyond they do not.
TEST(MatMul, ExtremeInputsFollowTheReference) {
  Random random(5);
  constexpr int64_t kCols = 96;
  for (const int largest_scale : {246, 254}) {
    for (const WeightFormat format : kFormats) {
      OwnedMatrix a(format, 33, kCols, random);
      for (size_t i = 0; i < a.scales().size(); i += 5) a.scales()[i] = std::byte{0};
      for (size_t i = 2; i < a.scales().size(); i += 7) a.scales()[i] = static_cast<std::byte>(largest_scale);
      std::vector<float> x = RandomFloats(random, 6 * kCols);
      SprinkleFiniteExtremes(random, x);
      x[2 * kCols + 40] = kInf;
      x[3 * kCols + 50] = -kInf;
      x[4 * kCols + 60] = std::numeric_limits<float>::quiet_NaN();
      const std::vector<float> expected = Reference(a.view(), {.base = x.data(), .stride = kCols}, 6);
      ForEachTarget([&] {
        ASSERT_NO_FATAL_FAILURE(
            ExpectSameBits(Multiply(a.view(), {.base = x.data(), .stride = kCols}, 6), expected));
        for (size_t t = 0; t < 6; ++t) {
          const InputRows alone{.base = x.data() + t * kCols, .stride = kCols};
          ASSERT_NO_FATAL_FAILURE(
              ExpectSameBits(Multiply(a.view(), alone, 1), std::span(expected).subspan(t * 33, 33)));
        }
      });
      EXPECT_TRUE(std::isnan(expected[4 * 33]));
    }
  }
}

TEST(MatMul, NanWeightReachesItsOwnRowOnly) {
  Random random(6);
  OwnedMatrix a(WeightFormat::kFp8Tile32, 33, 64, random);
  a.data(20 * 64 + 45) = kE4m3Nan;
  a.data(32 * 64 + 3) = std::byte{0xFF};
  const std::vector<float> x = RandomFloats(random, 5 * 64);
  ForEachTarget([&] {
    for (const int64_t n_tokens : {1, 5}) {
      const std::vector<float> y = Multiply(a.view(), {.base = x.data(), .stride = 64}, n_tokens);
      for (size_t i = 0; i < y.size(); ++i)
        ASSERT_EQ(std::isnan(y[i]), i % 33 == 20 || i % 33 == 32) << "element " << i;
    }
  });
}

// All codes of a format under the given scale code.
OwnedMatrix EveryCode(WeightFormat format, int scale) {
  Random random(7);
  const int64_t cols = format == WeightFormat::kFp4Row32 ? 512 : 256;
  OwnedMatrix a(format, 1, cols, random);
  if (format == WeightFormat::kFp8Tile32 || format == WeightFormat::kFp4Row32) {
    for (size_t i = 0; i < 256; ++i) a.data(i) = static_cast<std::byte>(i);
  }
  for (std::byte& s : a.scales()) s = static_cast<std::byte>(scale);
  return a;
}

TEST(DecodeRow, DecodesEveryCodeUnderEveryScaleExactly) {
  for (const WeightFormat format : {WeightFormat::kFp8Tile32, WeightFormat::kFp4Row32}) {
    for (int scale = 0; scale < 256; ++scale) {
      const OwnedMatrix a = EveryCode(format, scale);
      std::vector<float> expected;
      for (int64_t i = 0; i < a.view().cols; ++i) expected.push_back(ref::WeightAt(a.view(), 0, i));
      ForEachTarget([&] {
        std::vector<float> row(expected.size());
        DecodeRow(a.view(), 0, row.data());
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(row, expected)) << "scale code " << scale;
      });
    }
  }
}

TEST(DecodeRow, DecodesEveryBf16) {
  std::vector<uint16_t> codes(65536);
  std::iota(codes.begin(), codes.end(), uint16_t{0});
  const WeightMatrix a{.format = WeightFormat::kBf16,
                       .rows = 2,
                       .cols = 32768,
                       .data = reinterpret_cast<const std::byte*>(codes.data())};
  ForEachTarget([&] {
    std::vector<float> row(32768);
    for (size_t r = 0; r < 2; ++r) {
      DecodeRow(a, static_cast<int64_t>(r), row.data());
      for (size_t i = 0; i < row.size(); ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(row[i]), static_cast<uint32_t>(codes[r * 32768 + i]) << 16);
    }
  });
}

TEST(DecodeRow, PicksTheRowAndItsScales) {
  Random random(8);
  for (const WeightFormat format : kFormats) {
    const OwnedMatrix a(format, 70, 96, random);
    ForEachTarget([&] {
      for (int64_t row = 0; row < 70; ++row) {
        std::vector<float> actual(96);
        std::vector<float> expected;
        DecodeRow(a.view(), row, actual.data());
        for (int64_t i = 0; i < 96; ++i) expected.push_back(ref::WeightAt(a.view(), row, i));
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(actual, expected)) << "row " << row;
      }
    });
  }
}

TEST(DecodeRow, EqualsTheGoldensExactly) {
  MILLRACE_SKIP_WITHOUT_GOLDEN("weights");
  const UnitGolden golden("weights");
  struct Case {
    std::string prefix;
    WeightFormat format;
    int64_t rows;
    int64_t cols;
  };
  for (const Case& c : {Case{"fp8_tiles", WeightFormat::kFp8Tile32, 80, 96},
                        Case{"fp4_rows", WeightFormat::kFp4Row32, 12, 128}}) {
    SCOPED_TRACE(c.prefix);
    const auto weight = golden.Get<std::byte>(c.prefix + ".weight");
    const auto scale = golden.Get<std::byte>(c.prefix + ".scale");
    const WeightMatrix a{
        .format = c.format, .rows = c.rows, .cols = c.cols, .data = weight.data(), .scales = scale.data()};
    ForEachTarget([&] {
      std::vector<float> decoded(static_cast<size_t>(c.rows * c.cols));
      for (int64_t row = 0; row < c.rows; ++row) DecodeRow(a, row, decoded.data() + row * c.cols);
      ExpectSameBits(decoded, golden.Get<float>(c.prefix + ".value"));
    });
  }
}

// Engram table rows are tiles whose scales repeat for one row: a one-row matrix each.
TEST(DecodeRow, DecodesRowsWithTheirOwnScales) {
  MILLRACE_SKIP_WITHOUT_GOLDEN("weights");
  const UnitGolden golden("weights");
  const auto weight = golden.Get<std::byte>("fp8_rows.weight");
  const auto scale = golden.Get<std::byte>("fp8_rows.scale");
  std::vector<float> decoded(weight.size());
  for (size_t row = 0; row < 20; ++row) {
    const WeightMatrix a{.format = WeightFormat::kFp8Tile32,
                         .rows = 1,
                         .cols = 64,
                         .data = weight.data() + row * 64,
                         .scales = scale.data() + row * 2};
    DecodeRow(a, 0, decoded.data() + row * 64);
  }
  ExpectSameBits(decoded, golden.Get<float>("fp8_rows.value"));
}

TEST(Dot, EqualsTheReferenceForEveryLengthAndStart) {
  Random random(9);
  for (size_t n = 0; n <= 160; n += 16) {
    for (size_t skew = 0; skew < 3; ++skew) {
      std::vector<float> a = RandomFloats(random, n + skew);
      const std::vector<float> b = RandomFloats(random, n + 2 * skew);
      if (skew == 2) SprinkleFiniteExtremes(random, a);
      const float* pa = a.data() + skew;
      const float* pb = b.data() + 2 * skew;
      ForEachTarget([&] {
        ASSERT_EQ(Bits(Dot(pa, pb, n)), Bits(ref::Dot(pa, pb, n))) << n;
        ASSERT_EQ(Bits(SumOfSquares(pa, n)), Bits(ref::Dot(pa, pa, n))) << n;
      });
    }
  }
}

// The test of the tests: these inputs tell the promised order from its neighbours.
TEST(Dot, OtherOrdersOfTheSumGiveOtherBits) {
  Random random(10);
  constexpr size_t kLength = 512;
  int sequential = 0;
  int eight_sums = 0;
  int unfused = 0;
  for (int trial = 0; trial < 20; ++trial) {
    const std::vector<float> a = RandomFloats(random, kLength);
    const std::vector<float> b = RandomFloats(random, kLength);
    float one = 0;
    std::array<float, 16> eight{};
    std::array<float, 16> rounded{};
    for (size_t i = 0; i < kLength; ++i) {
      one = std::fma(a[i], b[i], one);
      eight[i % 8] = std::fma(a[i], b[i], eight[i % 8]);
      rounded[i % 16] += a[i] * b[i];
    }
    const float dot = Dot(a.data(), b.data(), kLength);
    sequential += dot != one;
    eight_sums += dot != ref::SumTree(eight);
    unfused += dot != ref::SumTree(rounded);
  }
  EXPECT_GT(sequential, 0);
  EXPECT_GT(eight_sums, 0);
  EXPECT_GT(unfused, 0);
}

}  // namespace
}  // namespace millrace::kernels
