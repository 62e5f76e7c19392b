#include "kernels/matmul_int8.h"

#include <array>
#include <cstring>

#include "kernels/matmul_int8_ref.h"
#include "kernels/testing_targets.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

struct Fp4Matrix {
  Fp4Matrix(Random& random, int64_t rows, int64_t cols)
      : codes(RandomBytes(random, static_cast<size_t>(rows * cols / 2))),
        scales(RandomBytes(random, static_cast<size_t>(rows * cols / 32))),
        view{.format = WeightFormat::kFp4Row32, .rows = rows, .cols = cols} {
    // No checkpoint with a NaN scale is loaded; the other end, 2^-127, is subnormal and stays in.
    for (std::byte& s : scales) s = s == std::byte{255} ? std::byte{0} : s;
    view.data = codes.data();
    view.scales = scales.data();
  }

  std::vector<std::byte> codes, scales;
  WeightMatrix view;
};

std::vector<float> Multiply(const WeightMatrix& a, int64_t row_begin, int64_t row_end, const QuantizedRows& x,
                            int64_t n_tokens) {
  std::vector<float> y(static_cast<size_t>(n_tokens * a.rows));
  std::vector<float> scratch(kMatMulInt8ScratchFloats);
  MatMulInt8(a, row_begin, row_end, x, n_tokens, y.data(), a.rows, scratch);
  return y;
}

// x [rows, cols], rounded row by row.
std::vector<QuantizedGroup> Quantize(std::span<const float> x, int64_t cols) {
  const auto groups = static_cast<size_t>(QuantizedGroups(cols));
  const size_t rows = x.size() / static_cast<size_t>(cols);
  std::vector<QuantizedGroup> quantized(rows * groups);
  for (size_t r = 0; r < rows; ++r)
    QuantizeInt8(x.data() + r * static_cast<size_t>(cols), cols, quantized.data() + r * groups);
  return quantized;
}

float Expected(const WeightMatrix& a, int64_t row, std::span<const QuantizedGroup> x, int64_t from) {
  return ref::RowDotInt8(a, row, x.data() + from * QuantizedGroups(a.cols));
}

TEST(QuantizeInt8, EqualsReferenceOnEveryInstructionSet) {
  Random random(7);
  for (const int64_t n : {32, 64, 96, 128, 2304}) {
    std::vector<float> x = RandomFloats(random, static_cast<size_t>(n));
    for (int64_t i = 0; i < 32; i += 3) x[static_cast<size_t>(i)] = 0;
    std::vector<QuantizedGroup> expected(static_cast<size_t>(QuantizedGroups(n)));
    ref::QuantizeInt8(x.data(), n, expected.data());
    for (const int64_t target : RunnableTargets()) {
      const ScopedTarget scope(target);
      SCOPED_TRACE(hwy::TargetName(target));
      std::vector<QuantizedGroup> actual(expected.size());
      for (QuantizedGroup& group : actual) group.scales[0] = 55;
      QuantizeInt8(x.data(), n, actual.data());
      EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(QuantizedGroup)), 0);
    }
  }
}

TEST(QuantizeInt8, RoundsToNearestAndZeroesWhatIsTooSmall) {
  std::vector<float> x(64, 0x1p-101f);
  x[0] = 127.0f;  // step 1 in the first block
  x[1] = -126.5f;
  x[2] = 2.5f;
  x[3] = -3.5f;
  const QuantizedGroup group = Quantize(x, 64)[0];
  EXPECT_EQ(group.even[0], 127);
  EXPECT_EQ(group.odd[0], -126);  // ties to even
  EXPECT_EQ(group.even[1], 2);
  EXPECT_EQ(group.odd[1], -4);
  EXPECT_EQ(group.scales[0], 0.5f);
  EXPECT_EQ(group.offsets[0], -12 * (127 - 126 + 2 - 4));
  EXPECT_EQ(group.scales[1], 0.0f);
  EXPECT_EQ(group.offsets[1], 0);
  EXPECT_EQ(group.even[16], 0);
}

TEST(MatMulInt8, EqualsReferenceOnEveryInstructionSetInEveryBatch) {
  Random random(11);
  // Whole and ragged panels of rows; block counts that fill vectors and chunks and such that do not.
  for (const auto& [rows, cols] : {std::pair{1, 32}, {3, 96}, {16, 512}, {21, 544}, {40, 1120}, {33, 2304}}) {
    const Fp4Matrix a(random, rows, cols);
    constexpr int64_t kTokens = 70;
    const std::vector<QuantizedGroup> x =
        Quantize(RandomFloats(random, static_cast<size_t>(kTokens * cols)), cols);
    std::vector<float> expected(static_cast<size_t>(kTokens * rows));
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t r = 0; r < rows; ++r)
        expected[static_cast<size_t>(t * rows + r)] = Expected(a.view, r, x, t);
    }
    for (const int64_t target : RunnableTargets()) {
      const ScopedTarget scope(target);
      for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 63, 64, 65, 70}) {
        SCOPED_TRACE(testing::Message()
                     << hwy::TargetName(target) << ", " << rows << " x " << cols << ", " << n);
        ExpectSameBits(Multiply(a.view, 0, rows, {.base = x.data(), .cols = cols}, n),
                       std::span(expected).first(static_cast<size_t>(n * rows)));
      }
    }
  }
}

TEST(MatMulInt8, RowRangesAndTokenIndicesSelect) {
  Random random(13);
  const Fp4Matrix a(random, 50, 160);
  const std::vector<QuantizedGroup> x = Quantize(RandomFloats(random, 9 * 160), 160);
  const std::array<int32_t, 5> index = {8, 0, 3, 3, 7};
  for (const int64_t n : {1, 2, 5}) {
    const std::vector<float> y =
        Multiply(a.view, 5, 38, {.base = x.data(), .cols = 160, .index = index.data()}, n);
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t r = 0; r < 50; ++r) {
        const float expected =
            r < 5 || r >= 38 ? 0.0f : Expected(a.view, r, x, index[static_cast<size_t>(t)]);
        EXPECT_EQ(Bits(y[static_cast<size_t>(t * 50 + r)]), Bits(expected)) << "token " << t << ", row " << r;
      }
    }
  }
}

// The rounding is relative to each block's largest channel: at most half a step a product.
TEST(MatMulInt8, StaysCloseToTheUnroundedProduct) {
  Random random(17);
  Fp4Matrix a(random, 8, 256);
  for (std::byte& s : a.scales) s = std::byte{static_cast<uint8_t>(120 + static_cast<int>(s) % 8)};
  const std::vector<float> x = RandomFloats(random, 256);
  const std::vector<QuantizedGroup> quantized = Quantize(x, 256);
  const std::vector<float> y = Multiply(a.view, 0, 8, {.base = quantized.data(), .cols = 256}, 1);
  for (int64_t r = 0; r < 8; ++r) {
    std::vector<float> weights(256);
    DecodeRow(a.view, r, weights.data());
    double exact = 0, bound = 0;
    for (size_t i = 0; i < 256; ++i) {
      const double half_step = static_cast<double>(quantized[i / 128].scales[i / 32 % 4]);
      exact += static_cast<double>(weights[i]) * x[i];
      bound += std::fabs(static_cast<double>(weights[i])) * half_step * 1.001;
    }
    EXPECT_LE(std::fabs(y[static_cast<size_t>(r)] - exact), bound) << "row " << r;
    EXPECT_GT(bound, 0);
  }
}

}  // namespace
}  // namespace millrace::kernels
