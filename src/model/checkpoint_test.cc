#include "model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::model {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(Checkpoint, OpensTheMiniCheckpointWhole) {
  auto checkpoint = Checkpoint::Open(fs::path(MILLRACE_SOURCE_DIR) / "models/mini");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  const CheckpointReport& report = checkpoint->report();
  EXPECT_EQ(report.found.total.tensors, 664u);
  EXPECT_EQ(report.found.total.bytes, 4'221'302u);
  EXPECT_TRUE(report.ComponentComplete(Component::kDraft)) << report.ListOf(Component::kDraft, 10);
  EXPECT_FALSE(report.ComponentComplete(Component::kVision)) << "the config has no vision tower";
  EXPECT_TRUE(report.disagreements.empty());

  const StoredTensor wkv = checkpoint->Get(TensorKind::kWkv, false, 5);
  EXPECT_EQ(wkv.dtype, formats::DType::kF8E4M3);
  EXPECT_THAT(wkv.shape, ::testing::ElementsAre(64, 128));
  EXPECT_EQ(wkv.bytes.size(), 64u * 128);
}

class GoldenCheckpoint : public ::testing::TestWithParam<const char*> {};

// The golden checkpoints hold the whole text model and a few draft and vision tensors.
TEST_P(GoldenCheckpoint, ServesTextAndRefusesDraftsAndVision) {
  const fs::path dir = fs::path(MILLRACE_SHARED_DIR) / "golden/v41" / GetParam();
  if (!fs::exists(dir)) GTEST_SKIP() << "no golden checkpoint at " << dir;
  auto checkpoint = Checkpoint::Open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  const CheckpointReport& report = checkpoint->report();
  EXPECT_EQ(report.found.total.tensors, 1058u);
  EXPECT_TRUE(report.ComponentComplete(Component::kBackbone));
  EXPECT_FALSE(report.ComponentComplete(Component::kDraft));
  EXPECT_FALSE(report.ComponentComplete(Component::kVision));
  EXPECT_THAT(report.ListOf(Component::kDraft, 1000),
              HasSubstr("mtp.0.attn.wq_a.weight: found no such tensor"));
  EXPECT_EQ(checkpoint->Get(TensorKind::kEngramEmbed, true, 4).dtype, formats::DType::kF8E8M0);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenCheckpoint, ::testing::Values("v41-micro", "v41-small"),
                         [](const auto& name) { return std::string(name.param + 4); });

}  // namespace
}  // namespace millrace::model
