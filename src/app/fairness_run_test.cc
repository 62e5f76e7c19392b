#include "app/fairness_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "model/synthetic_checkpoint.h"
#include "rig/team.h"

namespace millrace::app {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FairnessRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) / "fairness_run_test";
    fs::remove_all(dir_);
    rig::Team team(1);
    const auto written =
        model::WriteSyntheticCheckpoint({.preset = model::SyntheticPreset::kTiny, .dir = dir_}, team.pool());
    ASSERT_TRUE(written.ok()) << written.error().message();
  }
  void TearDown() override { fs::remove_all(dir_); }

  Status Run(const FairnessOptions& options) {
    return RunFairness(
        dir_, options, [&](const FairnessCase& row) { cases_.push_back(row); },
        [&](const ShortBehindHuge& row) { shorts_.push_back(row); });
  }

  fs::path dir_;
  std::vector<FairnessCase> cases_;
  std::vector<ShortBehindHuge> shorts_;
};

TEST_F(FairnessRunTest, MeasuresEachScheduleThroughAWholeEngine) {
  const FairnessOptions options{.streams = 2,
                                .prompts = 3,
                                .prompt_tokens = 300,
                                .huge_prompt_tokens = 1200,
                                .short_prompt_tokens = 20,
                                .chunk_tokens = 64,
                                .measured_s = 0.05,
                                .threads = 1};
  const Status ran = Run(options);
  ASSERT_TRUE(ran.ok()) << ran.error().message();
  ASSERT_EQ(cases_.size(), 3u);
  EXPECT_THAT((std::vector{cases_[0].name, cases_[1].name, cases_[2].name}),
              ElementsAre("fair", "fcfs", "fcfs, not paced"));
  for (const FairnessCase& row : cases_) {
    EXPECT_GT(row.solo_tokens_per_s, 0) << row.name;
    EXPECT_GT(row.undisturbed_tokens_per_s, 0) << row.name;
    EXPECT_GT(row.longest_gap_s, 0) << row.name;
    EXPECT_NEAR(row.prompt_tokens_per_s() * row.reading_s, 900, 1e-6) << row.name;
    EXPECT_GT(row.first_token_s, 0) << row.name;
    EXPECT_LE(row.first_token_s, row.reading_s) << row.name;
    EXPECT_GE(row.stream_tokens_per_s, 2 * row.slowest_tokens_per_s) << row.name;
  }
  ASSERT_EQ(shorts_.size(), 2u);
  EXPECT_EQ(shorts_[0].huge_tokens, 300);
  EXPECT_EQ(shorts_[1].huge_tokens, 1200);
  EXPECT_GT(shorts_[1].first_token_s, 0);
}

TEST_F(FairnessRunTest, PromptsAreCutOffAfterTheTimeGiven) {
  const Status ran = Run({.streams = 2,
                          .prompts = 2,
                          .prompt_tokens = 3000,
                          .huge_prompt_tokens = 0,
                          .chunk_tokens = 1,
                          .measured_s = 0.05,
                          .longest_reading_s = 0.2,
                          .threads = 1});
  ASSERT_TRUE(ran.ok()) << ran.error().message();
  ASSERT_EQ(cases_.size(), 3u);
  for (const FairnessCase& row : cases_) {
    EXPECT_GE(row.reading_s, 0.2) << row.name;
    EXPECT_LT(row.prompt_tokens, 6000) << row.name;
    EXPECT_GT(row.prompt_tokens, 0) << row.name;
    EXPECT_EQ(row.first_token_s, 0) << row.name;
  }
}

TEST_F(FairnessRunTest, APromptThatTheModelCannotHoldIsRefused) {
  const Status ran = Run({.prompt_tokens = int64_t{1} << 40});
  ASSERT_FALSE(ran.ok());
  EXPECT_THAT(ran.error().message(), HasSubstr("max-model-len"));
}

}  // namespace
}  // namespace millrace::app
