#include "rig/team.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "rig/matrix_copies.h"
#include "rig/quantized_batch.h"
#include "rig/verify.h"

namespace millrace::rig {
namespace {

using kernels::WeightFormat;

constexpr int64_t kRows = 70;
constexpr int64_t kCols = 160;
constexpr int64_t kTokens = 5;

class TeamRuns : public testing::TestWithParam<WeightFormat> {};

TEST_P(TeamRuns, EveryRowOfEveryProduct) {
  Team team(3);
  MatrixCopies matrices(GetParam(), kRows, kCols, 2, team);
  const kernels::AlignedVector<float> x = RandomActivations(kTokens * kCols, 1);
  kernels::AlignedVector<float> y(2 * kTokens * kRows, 12345.0f);
  std::vector<Product> products;
  for (int64_t i = 0; i < 2; ++i) {
    products.push_back({.a = &matrices[i],
                        .x = {.base = x.data(), .stride = kCols},
                        .n_tokens = kTokens,
                        .y = y.data() + i * kTokens * kRows,
                        .y_stride = kRows});
  }
  team.Run(products);
  for (const float value : y) EXPECT_NE(value, 12345.0f);
  for (const Product& product : products) {
    const Status status = VerifyProduct(product, "product");
    EXPECT_TRUE(status.ok()) << status.error().message();
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, TeamRuns,
                         testing::Values(WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kFp8Tile32,
                                         WeightFormat::kFp4Row32));

TEST(Team, RunsFastNumericsWhereThereAreCodes) {
  Team team(2);
  MatrixCopies matrices(WeightFormat::kFp4Row32, kRows, kCols, 1, team);
  const kernels::AlignedVector<float> x = RandomActivations(kTokens * kCols, 1);
  QuantizedBatch codes(kTokens, kCols);
  codes.Quantize(x.data(), team);
  const std::vector<int32_t> index = {4, 0, 2};
  const kernels::QuantizedRows rows = codes.Rows(0, index.data());
  kernels::AlignedVector<float> y(index.size() * kRows);
  Product product{.a = &matrices[0], .codes = &rows, .n_tokens = 3, .y = y.data(), .y_stride = kRows};
  team.Run(std::span(&product, 1));
  EXPECT_TRUE(VerifyProduct(product, "product").ok());
  // One bit is enough to be noticed.
  y.back() = std::bit_cast<float>(std::bit_cast<uint32_t>(y.back()) ^ 1u);
  const Status status = VerifyProduct(product, "the matmul");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kMismatch);
  EXPECT_NE(status.error().message().find("the matmul: row 69 of token 2"), std::string::npos)
      << status.error().message();
}

TEST(Team, ShowsTheProcessorTimeOfEachThread) {
  Team team(2);
  const CpuTimes before = team.CpuTimesNow();
  ASSERT_EQ(before.size(), 2u);
  for (int i = 0; i < 200; ++i) team.Wake();
  const CpuTimes after = team.CpuTimesNow();
  EXPECT_GT(after[0], before[0]);
  EXPECT_GT(after[1], before[1]);
}

TEST(MatrixCopies, ComeInTurnAndDiffer) {
  Team team(2);
  MatrixCopies matrices(WeightFormat::kFp8Tile32, 64, 64, 3, team);
  const std::byte* first = matrices.Next().data;
  const std::byte* second = matrices.Next().data;
  EXPECT_FALSE(std::equal(first, first + 64 * 64, second));
  matrices.Next();
  EXPECT_EQ(matrices.Next().data, first);
  EXPECT_EQ(StoredBytes(matrices[0]), 64 * 64 + 4);
}

}  // namespace
}  // namespace millrace::rig
