#include "model/engram_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "formats/safetensors.h"
#include "model/pcg64.h"

namespace millrace::model {
namespace {

namespace fs = std::filesystem;

const fs::path kSpec = fs::path(MILLRACE_SHARED_DIR) / "spec/v41-config.json";
const fs::path kUnits = fs::path(MILLRACE_SHARED_DIR) / "golden/v41/units";

// The released hash with classes that stand for themselves (shared/golden/v41/units works on compressed ids).
Result<EngramHash> ReleasedHash() {
  MILLRACE_ASSIGN_OR_RETURN(const formats::ModelConfig config, formats::ReadHfConfig(kSpec));
  TokenClasses classes{.class_of = {}, .n_classes = config.engram_compressed_vocab_size};
  for (int64_t id = 0; id < config.vocab_size; ++id) {
    classes.class_of.push_back(static_cast<int32_t>(id % config.engram_compressed_vocab_size));
  }
  return EngramHash::Build(config, std::move(classes));
}

template <typename T>
std::vector<T> Read(const formats::SafetensorsFile& file, const std::string& name) {
  const formats::TensorInfo* info = file.Find(name);
  EXPECT_NE(info, nullptr) << name;
  const std::span<const std::byte> bytes = file.Bytes(*info);
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

TEST(Pcg64, DrawsTheReleasedMultipliers) {
  const uint64_t bound = (uint64_t{1} << 63) / 99092 / 2;
  Pcg64 rng(10007);
  EXPECT_EQ(2 * rng.Below(bound) + 1, 76632096046245u);
  EXPECT_EQ(2 * rng.Below(bound) + 1, 4839876093313u);
  EXPECT_EQ(2 * rng.Below(bound) + 1, 35959672319349u);
  EXPECT_EQ(2 * rng.Below(bound) + 1, 73987337458391u);
}

TEST(EngramHash, ReleasedMultipliersOfBothLayers) {
  if (!fs::exists(kSpec)) GTEST_SKIP() << "the released config is not here: " << kSpec;
  const Result<EngramHash> hash = ReleasedHash();
  ASSERT_TRUE(hash.ok()) << hash.error().message();
  ASSERT_EQ(hash->n_layers(), 2);
  // shared/spec/v41-checkpoint.md, section 8.
  EXPECT_EQ(hash->layer(0).multipliers,
            (std::vector<uint64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(hash->layer(1).multipliers,
            (std::vector<uint64_t>{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
}

TEST(EngramHash, RowsOfTheGoldenSequences) {
  if (!fs::exists(kUnits)) GTEST_SKIP() << "goldens are not here: " << kUnits;
  const Result<EngramHash> hash = ReleasedHash();
  ASSERT_TRUE(hash.ok()) << hash.error().message();
  const formats::SafetensorsFile file =
      std::move(formats::SafetensorsFile::Open(kUnits / "engram_hash.safetensors")).value();
  for (const std::string name : {"constant", "dead", "edges", "random", "short"}) {
    const std::vector<int64_t> ids = Read<int64_t>(file, name + ".ids");
    const std::vector<int64_t> want = Read<int64_t>(file, name + ".hash");
    std::vector<int32_t> window(4, kDeadClass);
    std::vector<int64_t> got;
    for (int64_t id : ids) {
      std::rotate(window.begin(), window.begin() + 1, window.end());
      window.back() = static_cast<int32_t>(id);
      for (int layer = 0; layer < 2; ++layer) {
        std::vector<int64_t> rows(24);
        hash->Rows(layer, window, rows);
        got.insert(got.end(), rows.begin(), rows.end());
      }
    }
    EXPECT_EQ(got, want) << name;
  }
}

TEST(EngramHash, RefusesClassesOfAnotherTokenizer) {
  if (!fs::exists(kSpec)) GTEST_SKIP() << "the released config is not here: " << kSpec;
  const formats::ModelConfig config = *formats::ReadHfConfig(kSpec);
  TokenClasses classes{.class_of = std::vector<int32_t>(static_cast<size_t>(config.vocab_size)),
                       .n_classes = 99091};
  const Result<EngramHash> hash = EngramHash::Build(config, classes);
  ASSERT_FALSE(hash.ok());
  EXPECT_NE(hash.error().message().find("99091"), std::string::npos) << hash.error().message();
  EXPECT_NE(hash.error().message().find("99092"), std::string::npos) << hash.error().message();
}

TEST(EngramHash, RefusesTableSizesThatArePrimeSumsOfAnotherConfig) {
  if (!fs::exists(kSpec)) GTEST_SKIP() << "the released config is not here: " << kSpec;
  formats::ModelConfig config = *formats::ReadHfConfig(kSpec);
  config.engram_num_embeddings[1] += 1;
  TokenClasses classes{.class_of = std::vector<int32_t>(static_cast<size_t>(config.vocab_size)),
                       .n_classes = 99092};
  const Result<EngramHash> hash = EngramHash::Build(config, classes);
  ASSERT_FALSE(hash.ok());
  EXPECT_NE(hash.error().message().find("384016682"), std::string::npos) << hash.error().message();
}

TEST(EngramHash, MiniCheckpointAgreesWithItsMap) {
  const fs::path mini = fs::path(MILLRACE_SOURCE_DIR) / "models/mini";
  const formats::ModelConfig config = *formats::ReadHfConfig(mini);
  const Result<EngramHash> hash = EngramHash::ForCheckpoint(config, mini);
  ASSERT_TRUE(hash.ok()) << hash.error().message();
  EXPECT_EQ(hash->classes().n_classes, 1072);
}

}  // namespace
}  // namespace millrace::model
