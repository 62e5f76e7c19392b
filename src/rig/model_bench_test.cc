#include "rig/model_bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "formats/scratch_dir.h"
#include "model/synthetic_checkpoint.h"
#include "rig/bench_sequence.h"
#include "rig/step_cost.h"

namespace millrace::rig {
namespace {

class ModelBenchTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto written =
        model::WriteSyntheticCheckpoint({.seed = 1, .dir = dir_.path(), .overwrite = true}, team_.pool());
    ASSERT_TRUE(written.ok()) << written.error().message();
    Result<model::Checkpoint> checkpoint = model::Checkpoint::Open(dir_.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
    checkpoint_.emplace(std::move(checkpoint).value());
  }

  std::unique_ptr<model::Forward> MakeForward(int64_t max_batch_tokens) {
    Result<model::EngramHash> hash = model::EngramHash::ForCheckpoint(checkpoint_->config(), dir_.path());
    EXPECT_TRUE(hash.ok());
    auto forward = model::Forward::Create(*checkpoint_, std::move(hash).value(), team_.pool(),
                                          {.max_batch_tokens = max_batch_tokens, .max_batch_items = 1});
    EXPECT_TRUE(forward.ok());
    return std::move(forward).value();
  }

  formats::ScratchDir dir_;
  Team team_{2};
  LimitLoops limits_;
  KernelBench bench_{.team = team_, .limits = limits_};
  std::optional<model::Checkpoint> checkpoint_;
};

TEST_F(ModelBenchTest, MeasuresEveryRowOfATinyModel) {
  ModelBenchOptions options{.prefill_tokens = 100, .decode_tokens = 4, .depth = 700, .busy_neighbours = 1};
  options.forward = {.max_batch_tokens = 64, .max_batch_items = 1, .numerics = model::Numerics::kFast};
  std::map<std::string, BenchRow> rows;
  std::vector<std::string> shapes;
  const Status status = BenchModel(*checkpoint_, bench_, options, [&](const BenchRow& row) {
    rows[row.name] = row;
    shapes.push_back(row.name + ": " + row.shape);
    EXPECT_GT(row.value, 0) << row.name;
    EXPECT_GT(row.limit, 0) << row.name;
    EXPECT_NEAR(row.ratio, row.value / row.limit, 1e-6 * row.ratio) << row.name;
    EXPECT_EQ(row.numerics, "fast");
    EXPECT_EQ(row.threads, 2);
  });
  ASSERT_TRUE(status.ok()) << status.error().message();
  EXPECT_EQ(shapes.size(), 8u) << "decode has two rows";
  for (const char* name :
       {"prefill", "decode", "prefill-decode", "decode-depth", "late-layers", "busy-decode", "busy-prefill"})
    EXPECT_TRUE(rows.contains(name)) << name;
  // Depths are whole pages.
  EXPECT_EQ(rows["decode-depth"].shape, "depth 768 over 512");
  // Tokens a second and what they stand for are one measurement.
  const model::LayerPlan plan = model::LayerPlan::Build(checkpoint_->config()).value();
  EXPECT_NEAR(rows["decode"].value * 1e9,
              rows["decode"].tokens_per_s * static_cast<double>(DecodeBytes(plan).total()),
              1e-6 * rows["decode"].value * 1e9);
  const double operations =
      2.0 * static_cast<double>(CountPrefill(plan, 100, model::LateLayers::kNeeded).total());
  EXPECT_NEAR(rows["prefill"].value * 1e9, rows["prefill"].tokens_per_s / 100 * operations,
              1e-6 * rows["prefill"].value * 1e9);
}

TEST_F(ModelBenchTest, RefusesWhatTheCheckpointCannotHold) {
  const Status status = BenchModel(*checkpoint_, bench_, {.depth = 65536}, [](const BenchRow&) { FAIL(); });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message().find("max_position_embeddings is 65536"), std::string::npos)
      << status.error().message();
}

TEST_F(ModelBenchTest, LoadIsMeasuredOrSaysWhyNot) {
  // While this process maps the files, the kernel keeps them.
  checkpoint_.reset();
  Result<BenchRow> row = BenchLoad(dir_.path(), bench_);
  ASSERT_TRUE(row.ok()) << row.error().message();
  if (row->skipped) {
    EXPECT_NE(row->skipped->find("stay in the kernel's cache"), std::string::npos) << *row->skipped;
  } else {
    EXPECT_GT(row->value, 0);
    EXPECT_GT(row->limit, 0);
  }
  row = BenchLoad(dir_.path() / "nowhere", bench_);
  ASSERT_FALSE(row.ok());
  EXPECT_EQ(row.error().code(), ErrorCode::kIo);
}

TEST_F(ModelBenchTest, ARepeatedSequenceDecodesOn) {
  const std::unique_ptr<model::Forward> forward = MakeForward(64);
  ASSERT_EQ(BenchSequence::DepthUnit(forward->plan()), 256);
  BenchSequence sequence(*forward, 2048 + 5, 9);
  sequence.Prefill(256);
  sequence.RepeatTo(2048);
  EXPECT_EQ(sequence.length(), 2048);
  for (int i = 0; i < 5; ++i) sequence.Decode();
  EXPECT_EQ(sequence.length(), 2053);
  for (const float logit : sequence.logits()) ASSERT_TRUE(std::isfinite(logit));
}

TEST_F(ModelBenchTest, ReadingInTheMiddleLeavesTheLength) {
  const std::unique_ptr<model::Forward> forward = MakeForward(64);
  BenchSequence sequence(*forward, 1024, 9);
  sequence.Prefill(256);
  sequence.ReadInTheMiddle(64, 1'000'000);
  sequence.ReadInTheMiddle(64, 0);
  EXPECT_EQ(sequence.length(), 256);
}

}  // namespace
}  // namespace millrace::rig
