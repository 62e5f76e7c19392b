#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/testing_golden.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kRotated = 64;
constexpr size_t kPairs = 32;
// The tables of the released configuration.
const RopeTable kMain = RopeTable::Plain(kRotated, 10000.0f);
const RopeTable kCompress =
    RopeTable::Yarn(kRotated, 160000.0f, {.factor = 16, .original_max_position_embeddings = 65536});

void ExpectNear(std::span<const float> actual, std::span<const float> expected, float tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
}

TEST(Rope, FrequenciesAndAnglesEqualTheGoldensExactly) {
  MILLRACE_SKIP_WITHOUT_GOLDEN("rope");
  const UnitGolden golden("rope");
  const auto positions = golden.Get<int64_t>("positions");
  for (const auto& [name, table] : {std::pair{"main", &kMain}, std::pair{"compress", &kCompress}}) {
    SCOPED_TRACE(name);
    ExpectSameBits(table->inv_freq(), golden.Get<float>(std::string(name) + ".inv_freq"));
    std::vector<float> angles;
    for (const int64_t position : positions) {
      for (const float freq : table->inv_freq()) angles.push_back(static_cast<float>(position) * freq);
    }
    ExpectSameBits(angles, golden.Get<float>(std::string(name) + ".angle"));
  }
}

TEST(Rope, CosinesAndSinesMatchTheGoldens) {
  MILLRACE_SKIP_WITHOUT_GOLDEN("rope");
  const UnitGolden golden("rope");
  const auto positions = golden.Get<int64_t>("positions");
  for (const auto& [name, table] : {std::pair{"main", &kMain}, std::pair{"compress", &kCompress}}) {
    SCOPED_TRACE(name);
    std::vector<float> cos(positions.size() * kPairs);
    std::vector<float> sin(cos.size());
    for (size_t t = 0; t < positions.size(); ++t)
      table->At(positions[t], cos.data() + t * kPairs, sin.data() + t * kPairs);
    ExpectNear(cos, golden.Get<float>(std::string(name) + ".cos"), 1.2e-7f);
    ExpectNear(sin, golden.Get<float>(std::string(name) + ".sin"), 1.2e-7f);
  }
}

TEST(Rope, RotationsMatchTheGoldensAndLeaveTheHeadOfTheVectorAlone) {
  MILLRACE_SKIP_WITHOUT_GOLDEN("rope");
  const UnitGolden golden("rope");
  const auto positions = golden.Get<int64_t>("positions");
  const auto x = golden.Get<float>("x");
  const size_t width = x.size() / positions.size();
  for (const bool back : {false, true}) {
    std::vector<float> y = x;
    for (size_t t = 0; t < positions.size(); ++t) {
      float cos[kPairs];
      float sin[kPairs];
      kCompress.At(positions[t], cos, sin);
      float* tail = y.data() + (t + 1) * width - kRotated;
      (back ? RotateBack : Rotate)(tail, cos, sin, kPairs);
    }
    ExpectNear(y, golden.Get<float>(back ? "x.inverse_compress" : "x.rotated_compress"), 5e-7f);
  }
}

TEST(Rope, YarnScalesOnlyBeyondItsRamp) {
  const RopeTable unscaled = RopeTable::Plain(kRotated, 160000.0f);
  for (size_t i = 0; i <= 15; ++i) EXPECT_EQ(kCompress.inv_freq()[i], unscaled.inv_freq()[i]) << i;
  for (size_t i = 16; i < 25; ++i) {
    EXPECT_LT(kCompress.inv_freq()[i], unscaled.inv_freq()[i]) << i;
    EXPECT_GT(kCompress.inv_freq()[i], unscaled.inv_freq()[i] / 16) << i;
  }
  for (size_t i = 25; i < kPairs; ++i) EXPECT_EQ(kCompress.inv_freq()[i], unscaled.inv_freq()[i] / 16) << i;
}

TEST(Rope, EmptyRampIsAStep) {
  // Both ends of the ramp fall on the last channel, where the formula would divide by zero.
  const RopeTable table = RopeTable::Yarn(
      8, 10000.0f,
      {.factor = 4, .beta_fast = 1e-9, .beta_slow = 1e-9, .original_max_position_embeddings = 4096});
  for (const float freq : table.inv_freq()) EXPECT_TRUE(std::isfinite(freq));
}

TEST(Rope, PositionZeroRotatesNothingAndBackUndoesForth) {
  Random random(1);
  const std::vector<float> x = RandomFloats(random, kRotated);
  float cos[kPairs];
  float sin[kPairs];
  std::vector<float> y = x;
  kMain.At(0, cos, sin);
  Rotate(y.data(), cos, sin, kPairs);
  EXPECT_EQ(y, x);
  kMain.At(123456, cos, sin);
  Rotate(y.data(), cos, sin, kPairs);
  EXPECT_NE(y, x);
  RotateBack(y.data(), cos, sin, kPairs);
  for (size_t i = 0; i < x.size(); ++i) {
    const float pair = std::hypot(x[i / 2 * 2], x[i / 2 * 2 + 1]);
    EXPECT_NEAR(y[i], x[i], 4e-7f * pair);
  }
}

}  // namespace
}  // namespace millrace::kernels
