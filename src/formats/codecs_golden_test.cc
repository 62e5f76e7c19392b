#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/codecs.h"
#include "formats/safetensors.h"

// The codecs of base against vectors from another implementation. Here because reading the vectors takes
// formats.

namespace millrace::formats {
namespace {

std::filesystem::path UnitGolden(const std::string& name) {
  return std::filesystem::path(MILLRACE_SHARED_DIR) / "golden/v41/units" / name;
}

class CodecsGolden : public testing::Test {
 protected:
  SafetensorsFile Open(const std::string& name) {
    Result<SafetensorsFile> file = SafetensorsFile::Open(UnitGolden(name));
    if (!file.ok()) throw std::runtime_error(file.error().message());
    return std::move(file).value();
  }

  void SetUp() override {
    for (const char* name : {"codecs.safetensors", "weights.safetensors"}) {
      if (!std::filesystem::exists(UnitGolden(name))) GTEST_SKIP() << UnitGolden(name) << " is missing";
    }
  }
};

template <typename T>
std::vector<T> Values(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* tensor = file.Find(name);
  if (tensor == nullptr) throw std::runtime_error("no tensor " + name);
  const std::span<const std::byte> bytes = file.Bytes(*tensor);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Bit equality, except that any NaN is as good as another.
void ExpectSame(float found, float expected, size_t i) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << i;
  } else {
    EXPECT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(expected))
        << i << ": " << found << " instead of " << expected;
  }
}

TEST_F(CodecsGolden, DecodeTablesAreEqual) {
  const SafetensorsFile file = Open("codecs.safetensors");
  const auto e4m3 = Values<float>(file, "e4m3.decode");
  const auto e8m0 = Values<float>(file, "ue8m0.decode");
  const auto e2m1 = Values<float>(file, "e2m1.decode");
  ASSERT_EQ(e4m3.size(), 256u);
  ASSERT_EQ(e8m0.size(), 256u);
  ASSERT_EQ(e2m1.size(), 16u);
  for (size_t i = 0; i < 256; ++i) ExpectSame(E4m3ToFloat(static_cast<uint8_t>(i)), e4m3[i], i);
  for (size_t i = 0; i < 256; ++i) ExpectSame(E8m0ToFloat(static_cast<uint8_t>(i)), e8m0[i], i);
  for (size_t i = 0; i < 16; ++i) ExpectSame(E2m1ToFloat(static_cast<uint8_t>(i)), e2m1[i], i);
}

TEST_F(CodecsGolden, EncodersGiveTheExpectedCodes) {
  const SafetensorsFile file = Open("codecs.safetensors");
  const auto expect_codes = [&file](const std::string& name, auto codes, auto encode) {
    const auto inputs = Values<float>(file, name + ".encode_in");
    ASSERT_EQ(inputs.size(), codes.size());
    ASSERT_GT(inputs.size(), 0u);
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(encode(inputs[i]), codes[i]) << name << " " << i << ": " << inputs[i];
    }
  };
  expect_codes("e4m3", Values<uint8_t>(file, "e4m3.encode_out"), FloatToE4m3);
  expect_codes("e2m1", Values<uint8_t>(file, "e2m1.encode_out"), FloatToE2m1);
  expect_codes("bf16", Values<uint16_t>(file, "bf16.encode_out"), FloatToBf16);
}

// One of the three weight layouts: `decode(row, column)` of the stored code, times the scale at
// [row / scale_rows, column / 32].
template <typename Decode>
void ExpectWeights(const SafetensorsFile& file, const std::string& name, size_t scale_rows,
                   const Decode& decode) {
  const TensorInfo* value = file.Find(name + ".value");
  ASSERT_NE(value, nullptr);
  const auto rows = static_cast<size_t>(value->shape[0]);
  const auto columns = static_cast<size_t>(value->shape[1]);
  const auto expected = Values<float>(file, name + ".value");
  const auto codes = Values<uint8_t>(file, name + ".weight");
  const auto scales = Values<uint8_t>(file, name + ".scale");
  const size_t scale_columns = columns / 32;
  ASSERT_EQ(scales.size(), (rows + scale_rows - 1) / scale_rows * scale_columns);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      const float scale = E8m0ToFloat(scales[r / scale_rows * scale_columns + c / 32]);
      ExpectSame(decode(codes, r * columns + c) * scale, expected[r * columns + c], r * columns + c);
    }
  }
}

float DecodeFp8(const std::vector<uint8_t>& codes, size_t i) {
  return E4m3ToFloat(codes[i]);
}
// Two values a byte, the even one in the low half.
float DecodeFp4(const std::vector<uint8_t>& codes, size_t i) {
  return E2m1ToFloat(static_cast<uint8_t>(codes[i / 2] >> i % 2 * 4 & 15));
}

TEST_F(CodecsGolden, WeightLayoutsUnpack) {
  const SafetensorsFile file = Open("weights.safetensors");
  ExpectWeights(file, "fp8_tiles", 32, DecodeFp8);
  ExpectWeights(file, "fp8_rows", 1, DecodeFp8);
  ExpectWeights(file, "fp4_rows", 1, DecodeFp4);
}

// Bytes of the release: layers.0.attn.wkv.weight, row 0, scale byte 0x73 (2^-12).
TEST(Codecs, ReleasedBytesDecode) {
  constexpr uint8_t kCodes[] = {0xd8, 0x71, 0xf2, 0x79, 0x70, 0x69, 0xf0, 0xe5};
  constexpr float kValues[] = {-0.00390625f, 0.03515625f,  -0.0390625f, 0.0703125f,
                               0.03125f,     0.017578125f, -0.03125f,   -0.0126953125f};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(E4m3ToFloat(kCodes[i]) * E8m0ToFloat(0x73), kValues[i]) << i;
}

}  // namespace
}  // namespace millrace::formats
