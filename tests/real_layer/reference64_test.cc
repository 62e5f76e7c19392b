#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "model/engram_hash.h"
#include "real_layer/module_check.h"

// The reference itself against shared/golden/v41, before it judges anything: every tensor of every layer of
// both golden checkpoints, each module fed with the golden input.
namespace millrace::real_layer {
namespace {

// The goldens are float64 results rounded to float32, and so are the inputs here: all that may differ is what
// that rounding does. It is a tenth of what float32 arithmetic may do in a dot product, and most of it where
// a few terms are added. The README asks float32 for 5e-6.
constexpr double kTolerance = 1;
constexpr double kWorst = 1e-6;

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, EveryModuleOfTheReferenceGivesTheGoldenValues) {
  const std::filesystem::path dir = std::filesystem::path(MILLRACE_SHARED_DIR) / "golden/v41" / GetParam();
  if (!std::filesystem::exists(dir)) GTEST_SKIP() << "goldens are not here: " << dir;
  ThreadPool pool(2);
  const formats::ModelConfig config = formats::ReadHfConfig(dir).value();
  const StoredWeights weights(dir);
  const Reference64 reference(config, weights, pool);
  const Recording recording = GoldenRecording(dir);
  std::vector<int64_t> all(recording.ids.size());
  std::iota(all.begin(), all.end(), 0);
  Report report;
  ModuleCheck check(reference, recording, all, kTolerance, report);
  const model::EngramHash tables = model::EngramHash::ForCheckpoint(config, dir).value();
  check.CheckHashIds(EngramHash64(config, tables.classes().class_of));
  for (int l = 0; l < static_cast<int>(config.num_hidden_layers); ++l) check.CheckLayer(l);
  check.CheckOutput();
  report.Print(GetParam());
  EXPECT_EQ(report.lines().size(), 28u);
  for (const auto& [module, line] : report.lines()) {
    EXPECT_EQ(line.flipped, 0u) << module;
    EXPECT_LE(line.worst, kWorst) << module;
  }
}

INSTANTIATE_TEST_SUITE_P(V41, Golden, testing::Values("v41-micro", "v41-small"),
                         [](const auto& param) { return std::string(param.param).substr(4); });

}  // namespace
}  // namespace millrace::real_layer
