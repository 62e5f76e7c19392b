#include "model/synthetic_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "base/codecs.h"

namespace millrace::model {
namespace {

using formats::DType;

TensorSpec Spec(TensorKind kind, DType dtype, std::vector<int64_t> shape, bool scale = false) {
  TensorSpec spec;
  spec.kind = kind;
  spec.is_scale = scale;
  spec.name = TensorName(kind, scale);
  spec.dtype = dtype;
  spec.shape = std::move(shape);
  if (kind == TensorKind::kExpertW1 || kind == TensorKind::kExpertW2) spec.expert = 0;
  return spec;
}

std::vector<std::byte> Fill(const WeightSource& source, const TensorSpec& spec) {
  std::vector<std::byte> bytes(spec.bytes());
  size_t at = 0;
  for (uint64_t block = 0; block < WeightSource::BlockCount(spec); ++block) {
    source.FillBlock(spec, block, std::span(bytes).subspan(at));
    at += WeightSource::BlockBytes(spec, block);
  }
  EXPECT_EQ(at, bytes.size());
  return bytes;
}

std::vector<float> Floats(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> out;
  const size_t width = formats::DTypeBytes(dtype);
  for (size_t i = 0; i < bytes.size(); i += width) {
    if (dtype == DType::kF32) {
      float value;
      std::memcpy(&value, &bytes[i], sizeof value);
      out.push_back(value);
    } else {
      uint16_t code;
      std::memcpy(&code, &bytes[i], sizeof code);
      out.push_back(Bf16ToFloat(code));
    }
  }
  return out;
}

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  Moments m;
  for (const float value : values) {
    m.mean += value;
    m.largest = std::max(m.largest, std::fabs(static_cast<double>(value)));
  }
  m.mean /= static_cast<double>(values.size());
  for (const float value : values) m.deviation += (value - m.mean) * (value - m.mean);
  m.deviation = std::sqrt(m.deviation / static_cast<double>(values.size()));
  return m;
}

// A quantised matrix of `rows` x `cols` logical values, decoded with its own scales.
std::vector<float> Decoded(const WeightSource& source, TensorKind kind, int64_t rows, int64_t cols) {
  const bool fp4 = kind == TensorKind::kExpertW2;
  const bool tile = ScaleLayoutOf(kind) == ScaleLayout::kTile32;
  const auto codes =
      Fill(source, Spec(kind, fp4 ? DType::kI8 : DType::kF8E4M3, {rows, fp4 ? cols / 2 : cols}));
  const auto scales = Fill(source, Spec(kind, DType::kF8E8M0, {tile ? rows / 32 : rows, cols / 32}, true));
  std::vector<float> out;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = r * cols + c;
      const auto byte = std::to_integer<uint8_t>(codes[static_cast<size_t>(fp4 ? i / 2 : i)]);
      const float code = fp4 ? E2m1ToFloat(i % 2 == 0 ? byte & 15 : byte >> 4) : E4m3ToFloat(byte);
      const int64_t scale = (tile ? r / 32 : r) * (cols / 32) + c / 32;
      out.push_back(code * E8m0ToFloat(std::to_integer<uint8_t>(scales[static_cast<size_t>(scale)])));
    }
  }
  return out;
}

TEST(WeightSource, MatricesHaveTheDeviationThatKeepsOutputsLikeInputs) {
  const WeightSource source(1);
  for (const auto& [kind, rows, cols] : {std::tuple{TensorKind::kWqA, 1280, 5120},
                                         {TensorKind::kExpertW2, 2560, 2304},
                                         {TensorKind::kWoA, 16384, 96}}) {
    const Moments m = MomentsOf(Decoded(source, kind, rows, cols));
    EXPECT_NEAR(m.mean * std::sqrt(cols), 0, 0.02);
    EXPECT_NEAR(m.deviation * std::sqrt(cols), 1, 0.06) << TensorName(kind, false);
  }
}

TEST(WeightSource, PlainTensorsHaveTheirDistribution) {
  const WeightSource source(1);
  const Moments norm =
      MomentsOf(Floats(Fill(source, Spec(TensorKind::kAttnNorm, DType::kBF16, {20000})), DType::kBF16));
  EXPECT_NEAR(norm.mean, 1, 0.005);
  EXPECT_NEAR(norm.deviation, 0.1, 0.005);
  const Moments embed =
      MomentsOf(Floats(Fill(source, Spec(TensorKind::kEmbed, DType::kBF16, {400, 500})), DType::kBF16));
  EXPECT_NEAR(embed.mean, 0, 0.01);
  EXPECT_NEAR(embed.deviation, 1, 0.01);
  EXPECT_GT(embed.largest, 4);
  EXPECT_LT(embed.largest, 5);
  const Moments mix =
      MomentsOf(Floats(Fill(source, Spec(TensorKind::kHcAttnFn, DType::kF32, {24, 20480})), DType::kF32));
  EXPECT_NEAR(mix.deviation * std::sqrt(20480), 1, 0.01);
}

TEST(WeightSource, GateBiasesAreDistinct) {
  const auto values =
      Floats(Fill(WeightSource(1), Spec(TensorKind::kGateBias, DType::kF32, {4096})), DType::kF32);
  EXPECT_EQ(std::set<float>(values.begin(), values.end()).size(), values.size());
}

TEST(WeightSource, Fp8CodesCoverSubnormalsAndBothZerosAndNeverNan) {
  const auto codes = Fill(WeightSource(2), Spec(TensorKind::kWqA, DType::kF8E4M3, {1024, 1024}));
  std::array<size_t, 256> count{};
  for (const std::byte code : codes) ++count[std::to_integer<size_t>(code)];
  for (size_t code = 0; code < 256; ++code) {
    const bool nan = (code & 0x7F) == 0x7F;
    const bool special = (code & 0x7F) < 8;
    if (nan) {
      EXPECT_EQ(count[code], 0u);
    } else if (special) {
      EXPECT_GT(count[code], 100u) << code;
    }
  }
  EXPECT_GT(count[0x7E], 0u) << "the largest code occurs";
}

TEST(WeightSource, Fp4CodesAllOccurInEitherNibble) {
  const auto bytes = Fill(WeightSource(2), Spec(TensorKind::kExpertW1, DType::kI8, {256, 256}));
  std::array<size_t, 16> low{}, high{};
  for (const std::byte byte : bytes) {
    ++low[std::to_integer<size_t>(byte) & 15];
    ++high[std::to_integer<size_t>(byte) >> 4];
  }
  for (size_t code = 0; code < 16; ++code) {
    EXPECT_GT(low[code], 400u) << code;
    EXPECT_GT(high[code], 400u) << code;
  }
}

TEST(WeightSource, ScalesVaryByBlock) {
  const auto bytes = Fill(WeightSource(3), Spec(TensorKind::kWqA, DType::kF8E8M0, {40, 160}, true));
  std::set<int> exponents;
  size_t equal_neighbours = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    exponents.insert(std::to_integer<int>(bytes[i]));
    if (i > 0 && bytes[i] == bytes[i - 1]) ++equal_neighbours;
  }
  EXPECT_THAT(exponents.size(), ::testing::AllOf(::testing::Ge(3u), ::testing::Le(4u)));
  EXPECT_LT(equal_neighbours, bytes.size() / 2);
}

TEST(WeightSource, ABlockDependsOnSeedNameAndNumberAlone) {
  const TensorSpec spec = Spec(TensorKind::kWqA, DType::kF8E4M3, {300, 1000});
  const WeightSource source(7), same(7), other(8);
  const auto whole = Fill(source, spec);
  ASSERT_GT(WeightSource::BlockCount(spec), 2u);
  std::vector<std::byte> block(WeightSource::BlockBytes(spec, 2));
  same.FillBlock(spec, 2, block);
  EXPECT_TRUE(std::equal(block.begin(), block.end(), whole.begin() + 2 * WeightSource::kBlockElements));
  EXPECT_FALSE(std::equal(block.begin(), block.end(), whole.begin() + WeightSource::kBlockElements));
  other.FillBlock(spec, 2, block);
  EXPECT_FALSE(std::equal(block.begin(), block.end(), whole.begin() + 2 * WeightSource::kBlockElements));
  TensorSpec renamed = spec;
  renamed.name = "layers.1.attn.wq_a.weight";
  EXPECT_NE(Fill(source, renamed), whole);
}

// The bytes themselves, so that another compiler, machine or clean-up cannot change a checkpoint unnoticed.
TEST(WeightSource, GivesTheSameBytesOnEveryMachine) {
  const WeightSource source(42);
  const auto hex = [&](const TensorSpec& spec) {
    std::string out;
    for (const std::byte byte : Fill(source, spec)) {
      constexpr char kDigits[] = "0123456789abcdef";
      out += kDigits[std::to_integer<int>(byte) >> 4];
      out += kDigits[std::to_integer<int>(byte) & 15];
    }
    return out;
  };
  EXPECT_EQ(hex(Spec(TensorKind::kWqA, DType::kF8E4M3, {2, 6})), "dbf46dda70586ff6ead169e2");
  EXPECT_EQ(hex(Spec(TensorKind::kExpertW1, DType::kI8, {2, 6})), "89255b32b500b5ad8da5dd3a");
  EXPECT_EQ(hex(Spec(TensorKind::kWqA, DType::kF8E8M0, {2, 6}, true)), "747374747575747474737375");
  EXPECT_EQ(hex(Spec(TensorKind::kAttnNorm, DType::kBF16, {6})), "7e3f933f653f813f5b3f833f");
  EXPECT_EQ(hex(Spec(TensorKind::kAttnSink, DType::kF32, {3})), "064c29bf3508bbbf921639bf");
}

}  // namespace
}  // namespace millrace::model
