#include "kernels/matmul_rounded.h"

#include <array>
#include <limits>
#include <utility>

#include "kernels/matmul_rounded_ref.h"
#include "kernels/testing_targets.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Fp8Matrix {
  // Codes without NaN and scales of the whole ordinary range where `wide`, else near one.
  Fp8Matrix(Random& random, int64_t rows, int64_t cols, bool wide = false)
      : codes(RandomBytes(random, static_cast<size_t>(rows * cols))),
        scales(RandomBytes(random, static_cast<size_t>((rows + 31) / 32 * (cols / 32)))),
        view{.format = WeightFormat::kFp8Tile32, .rows = rows, .cols = cols} {
    for (std::byte& code : codes) {
      if ((code & std::byte{0x7F}) == std::byte{0x7F}) code = std::byte{0x80};
    }
    for (std::byte& scale : scales) {
      const auto drawn = static_cast<int>(scale);
      scale = static_cast<std::byte>(wide ? 77 + drawn % 101 : 120 + drawn % 14);
    }
    view.data = codes.data();
    view.scales = scales.data();
    view.ordinary = IsOrdinary(view);
    view.rounds_inputs = CanRoundInputs(view);
    EXPECT_TRUE(view.rounds_inputs);
  }

  std::vector<std::byte> codes, scales;
  WeightMatrix view;
};

// Calls check() on every instruction set, on one that multiplies pairs of bfloat16 also without doing so.
template <typename Check>
void ForEachWay(const Check& check) {
  ForEachTarget([&] {
    for (const bool allowed : {true, false}) {
      AllowBf16Pairs(allowed);
      SCOPED_TRACE(UsesBf16Pairs() ? "pairs" : "no pairs");
      if (allowed || HasBf16Pairs()) check();
    }
    AllowBf16Pairs(true);
  });
}

TEST(CanRoundInputs, WantsOrdinaryMatricesWithScalesFarFromTheEnds) {
  Random random(8);
  Fp8Matrix a(random, 40, 64);
  for (const auto& [scale, can] : {std::pair{76, false}, {77, true}, {177, true}, {178, false}}) {
    a.scales.back() = static_cast<std::byte>(scale);
    EXPECT_EQ(CanRoundInputs(a.view), can) << scale;
  }
  a.scales.back() = std::byte{127};
  a.view.ordinary = false;
  EXPECT_FALSE(CanRoundInputs(a.view)) << "not known to be without NaN";
  a.view.ordinary = true;
  EXPECT_TRUE(CanRoundInputs(a.view));
  a.view.format = WeightFormat::kBf16;
  EXPECT_FALSE(CanRoundInputs(a.view));
}

// Vectors x [n, cols], rounded.
std::vector<float> Round(std::span<const float> x, int64_t cols) {
  std::vector<float> rounded(x.size());
  for (size_t at = 0; at < x.size(); at += static_cast<size_t>(cols))
    RoundInputs(x.data() + at, 0, cols, rounded.data() + at);
  return rounded;
}

std::vector<float> Multiply(const WeightMatrix& a, const RoundedRows& x, int64_t n_tokens) {
  std::vector<float> y(static_cast<size_t>(n_tokens * a.rows), -1);
  std::vector<float> scratch(MatMulScratchFloats(a.cols));
  MatMulRounded(a, 0, a.rows, x, n_tokens, y.data(), a.rows, scratch);
  return y;
}

std::vector<float> Reference(const WeightMatrix& a, std::span<const float> x) {
  std::vector<float> y;
  for (const float* token = x.data(); token < x.data() + x.size(); token += a.cols) {
    for (int64_t row = 0; row < a.rows; ++row) y.push_back(ref::RowDotRounded(a, row, token));
  }
  return y;
}

TEST(RoundedInput, IsTheNearestBfloat16OfWhatIsInRange) {
  const std::pair<float, float> cases[] = {{1.0f, 1.0f},
                                           {1.00390625f, 1.0f},       // half way to the even one below
                                           {1.01171875f, 1.015625f},  // and above
                                           {-1.0040f, -1.0078125f},
                                           {0x1p-60f, 0x1p-60f},
                                           {0x1.fffffep-61f, 0.0f},
                                           {-0x1p-149f, 0.0f},
                                           {0x1p50f, 0x1p50f}};
  for (const auto& [x, expected] : cases) EXPECT_EQ(Bits(ref::RoundedInput(x)), Bits(expected)) << x;
  for (const float x : {0x1.000002p50f, -0x1.fffffep127f, kInf, -kInf})
    EXPECT_TRUE(std::isnan(ref::RoundedInput(x))) << x;
}

TEST(MatMulRounded, EqualsTheReferenceForEveryShape) {
  Random random(1);
  for (const int64_t cols : {32, 64, 96, 160, 544}) {
    for (const int64_t rows : {1, 3, 4, 5, 8, 15, 17, 31, 32, 33}) {
      const Fp8Matrix a(random, rows, cols);
      const std::vector<float> x = RandomFloats(random, static_cast<size_t>(9 * cols));
      const std::vector<float> expected = Reference(a.view, x);
      ForEachWay([&] {
        const std::vector<float> rounded = Round(x, cols);
        for (int64_t n_tokens = 1; n_tokens <= 9; ++n_tokens) {
          SCOPED_TRACE(testing::Message() << "[" << rows << ", " << cols << "] x " << n_tokens);
          const auto n = static_cast<size_t>(n_tokens * rows);
          ASSERT_NO_FATAL_FAILURE(
              ExpectSameBits(Multiply(a.view, {.base = rounded.data(), .stride = cols}, n_tokens),
                             std::span(expected).first(n)));
        }
      });
    }
  }
}

// More rows, columns and tokens than are worked on at a time, and a ragged rest of each.
TEST(MatMulRounded, EqualsTheReferenceAcrossStripsChunksAndTokenBlocks) {
  Random random(2);
  constexpr int64_t kRows = kBandRows + kStripRows + 3;
  constexpr int64_t kCols = 4 * static_cast<int64_t>(kChunkCols) + 96;
  constexpr int64_t kTokens = kTokenBlock + 6;
  const Fp8Matrix a(random, kRows, kCols);
  const std::vector<float> x = RandomFloats(random, kTokens * kCols);
  const std::vector<float> expected = Reference(a.view, x);
  ForEachWay([&] {
    const std::vector<float> rounded = Round(x, kCols);
    for (const int64_t n_tokens :
         {int64_t{1}, int64_t{5}, int64_t{16}, kTokenBlock, kTokenBlock + 1, kTokens}) {
      const auto n = static_cast<size_t>(n_tokens * kRows);
      ASSERT_NO_FATAL_FAILURE(
          ExpectSameBits(Multiply(a.view, {.base = rounded.data(), .stride = kCols}, n_tokens),
                         std::span(expected).first(n)))
          << n_tokens << " tokens";
    }
  });
}

// Scales, weights and inputs at both ends of their ranges: nothing is subnormal on the way, and what is not
// finite shows in its own token only.
TEST(MatMulRounded, EqualsTheReferenceAtTheEndsOfAllRanges) {
  Random random(3);
  constexpr int64_t kCols = 96;
  const Fp8Matrix a(random, 33, kCols, /*wide=*/true);
  std::vector<float> x = RandomFloats(random, 7 * kCols);
  SprinkleFiniteExtremes(random, std::span(x).first(kCols));
  for (size_t i = 0; i < kCols; ++i) {
    x[1 * kCols + i] = std::ldexp(x[1 * kCols + i], -58);  // about the smallest that are not zero
    x[2 * kCols + i] = std::copysign(i % 2 == 0 ? 0x1p-60f : 0x1.01p-60f, x[2 * kCols + i]);
    x[3 * kCols + i] = std::copysign(0x1p50f, x[3 * kCols + i]);
  }
  x[4 * kCols + 40] = kInf;
  x[5 * kCols + 50] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> expected = Reference(a.view, x);
  EXPECT_TRUE(std::isnan(expected[4 * 33]));
  EXPECT_TRUE(std::isnan(expected[5 * 33 + 32]));
  for (const size_t t : {1, 2, 3, 6}) EXPECT_TRUE(std::isfinite(expected[t * 33])) << t;
  ForEachWay([&] {
    const std::vector<float> rounded = Round(x, kCols);
    for (const int64_t n_tokens : {1, 7}) {
      for (int64_t t = 0; t < 7; t += n_tokens) {
        const RoundedRows rows{.base = rounded.data() + t * kCols, .stride = kCols};
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(
            Multiply(a.view, rows, n_tokens),
            std::span(expected).subspan(static_cast<size_t>(t * 33), static_cast<size_t>(n_tokens * 33))))
            << "token " << t;
      }
    }
  });
}

// The smallest products that there are, whose sums cancel: vdpbf16ps would flush what is subnormal.
TEST(MatMulRounded, NoSumOfTheSmallestProductsIsFlushed) {
  Random random(9);
  constexpr int64_t kCols = 160;
  Fp8Matrix a(random, 40, kCols);
  for (std::byte& code : a.codes) code = (code & std::byte{0x83}) | std::byte{1};  // +-2^-9, +-3 * 2^-9
  for (std::byte& scale : a.scales) scale = std::byte{77};
  std::vector<float> x = RandomFloats(random, 6 * kCols);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::copysign(std::ldexp(1.0f + static_cast<float>(i % 5) / 128, -60 - static_cast<int>(i % 3)),
                         x[i]);
  const std::vector<float> expected = Reference(a.view, x);
  ForEachWay([&] {
    const std::vector<float> rounded = Round(x, kCols);
    for (const int64_t n_tokens : {1, 6}) {
      ASSERT_NO_FATAL_FAILURE(
          ExpectSameBits(Multiply(a.view, {.base = rounded.data(), .stride = kCols}, n_tokens),
                         std::span(expected).first(static_cast<size_t>(n_tokens * 40))));
    }
  });
}

TEST(MatMulRounded, EveryCodeUnderEveryOrdinaryScaleIsExact) {
  Random random(4);
  Fp8Matrix a(random, 32, 256);
  for (size_t i = 0; i < 256; ++i) a.codes[i] = static_cast<std::byte>(i % 128 == 127 ? 0 : i);
  std::vector<float> x(6 * 256);
  for (size_t t = 0; t < 6; ++t) x[t * 256 + 41 * t] = 1;  // each picks one weight of the row
  for (int scale = 77; scale <= 177; scale += 4) {
    for (std::byte& s : a.scales) s = static_cast<std::byte>(scale);
    const std::vector<float> expected = Reference(a.view, x);
    ForEachWay([&] {
      const std::vector<float> rounded = Round(x, 256);
      for (const int64_t n_tokens : {1, 6}) {
        ASSERT_NO_FATAL_FAILURE(
            ExpectSameBits(Multiply(a.view, {.base = rounded.data(), .stride = 256}, n_tokens),
                           std::span(expected).first(static_cast<size_t>(n_tokens * 32))))
            << "scale code " << scale;
      }
    });
  }
}

TEST(MatMulRounded, RowRangesStridesAndIndicesSelect) {
  Random random(5);
  constexpr int64_t kRows = 70;
  constexpr int64_t kCols = 160;
  constexpr int64_t kStride = 170;
  const Fp8Matrix a(random, kRows, kCols);
  std::vector<float> x = RandomFloats(random, 9 * kStride);
  const std::array<int32_t, 7> index = {8, 0, 3, 3, 7, 1, 5};
  std::vector<float> scratch(MatMulScratchFloats(kCols));
  ForEachWay([&] {
    std::vector<float> rounded = x;
    // In their own places, as the forward pass does with what it needs no more.
    for (int64_t t = 0; t < 9; ++t) {
      float* const token = rounded.data() + t * kStride;
      RoundInputs(token, 0, kCols, token);
      EXPECT_EQ(token[kCols], x[static_cast<size_t>(t * kStride + kCols)]) << "beyond the vector";
    }
    const RoundedRows rows{.base = rounded.data(), .stride = kStride, .index = index.data()};
    for (const int64_t n_tokens : {1, 4, 7}) {
      for (const auto& [begin, end] : {std::pair{0, 70}, {5, 38}, {31, 33}, {40, 40}}) {
        std::vector<float> y(static_cast<size_t>(n_tokens * 80), 123.0f);
        MatMulRounded(a.view, begin, end, rows, n_tokens, y.data(), 80, scratch);
        for (int64_t t = 0; t < n_tokens; ++t) {
          const float* token = x.data() + index[static_cast<size_t>(t)] * kStride;
          for (int64_t r = 0; r < 80; ++r) {
            const float want = r < begin || r >= end ? 123.0f : ref::RowDotRounded(a.view, r, token);
            ASSERT_EQ(Bits(y[static_cast<size_t>(t * 80 + r)]), Bits(want)) << "token " << t << ", row " << r;
          }
        }
      }
    }
  });
}

TEST(MatMulRounded, VectorsMayBeRoundedInPieces) {
  Random random(6);
  const Fp8Matrix a(random, 8, 224);
  const std::vector<float> x = RandomFloats(random, 224);
  const std::vector<float> expected = Reference(a.view, x);
  ForEachWay([&] {
    std::vector<float> rounded(224);
    for (const auto& [begin, end] : {std::pair{96, 224}, {0, 32}, {32, 96}})
      RoundInputs(x.data(), begin, end, rounded.data());
    ExpectSameBits(Multiply(a.view, {.base = rounded.data(), .stride = 224}, 1), expected);
  });
}

// The test of the tests: these inputs tell the promised order from its neighbours.
TEST(MatMulRounded, OtherOrdersOfTheSumGiveOtherBits) {
  Random random(7);
  const Fp8Matrix a(random, 40, 512);
  const std::vector<float> x = RandomFloats(random, 512);
  int even_first = 0;
  int rising = 0;
  for (int64_t row = 0; row < 40; ++row) {
    std::array<float, 16> even{};
    std::array<float, 16> sums{};
    for (int64_t i = 0; i < 512; ++i) {
      const float w = ref::WeightAt(a.view, row, i);
      const float xi = ref::RoundedInput(x[static_cast<size_t>(i)]);
      float& pair = even[static_cast<size_t>(i % 32 / 2)];
      pair = std::fma(w, xi, pair);
      float& sum = sums[static_cast<size_t>(i % 16)];
      sum = std::fma(w, xi, sum);
    }
    const float dot = ref::RowDotRounded(a.view, row, x.data());
    even_first += dot != ref::SumTree(even);
    rising += dot != ref::SumTree(sums);
  }
  EXPECT_GT(even_first, 0);
  EXPECT_GT(rising, 0);
}

}  // namespace
}  // namespace millrace::kernels
