#include "rig/step_cost.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "formats/hf_config.h"
#include "model/synthetic_presets.h"

namespace millrace::rig {
namespace {

using model::Category;
using model::LateLayers;
using model::LayerPlan;

// The preset says nothing of what follows from the tokenizer; any table size does here.
LayerPlan TinyPlan() {
  formats::ModelConfig config = model::PresetConfig(model::SyntheticPreset::kTiny);
  config.engram_num_embeddings = {1000, 1000};
  config.engram_compressed_vocab_size = config.vocab_size;
  Result<LayerPlan> plan = LayerPlan::Build(config);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message());
  return std::move(plan).value();
}

// Hidden 128, experts 12 of width 64, 3 a token, 8 layers, 4 heads of 64.
TEST(DecodeBytes, OfTheTinyPresetAreThoseCountedByHand) {
  const ByCategory bytes = DecodeBytes(TinyPlan());
  // Three matrices of 64 x 128 half bytes, scales per 32.
  EXPECT_EQ(bytes[Category::kExpertWeights], 8u * 3 * 3 * 4096);
  EXPECT_EQ(bytes[Category::kExpertScales], 8u * 3 * 3 * 256);
  // One byte a weight, a scale a tile of 32 x 32.
  EXPECT_EQ(bytes[Category::kSharedExperts], 8u * 3 * (64 * 128 + 2 * 4));
  // wq_a 160 x 128, wq_b 256 x 160, wkv 64 x 128, wo_a 192 x 128, wo_b 128 x 192; two norms in bf16, sinks.
  EXPECT_EQ(bytes[Category::kAttention], 8u * (118784 + 116 + 2 * 160 + 2 * 64 + 4 * 4));
  // Router 12 x 128 bf16 and one bias of 12 floats: the one for images is not read.
  EXPECT_EQ(bytes[Category::kGates], 8u * (2 * 12 * 128 + 4 * 12));
  // One row of the embedding, the whole head, the last norm.
  EXPECT_EQ(bytes[Category::kEmbedHeadNorm], 2u * 128 + 2 * 1024 * 128 + 2 * 128);
  // Two tables, 3 orders x 4 heads rows of 32 codes and a scale.
  EXPECT_EQ(bytes[Category::kEngramTables], 2u * 12 * 33);
  EXPECT_EQ(bytes[Category::kDraftExperts] + bytes[Category::kDraftOther] + bytes[Category::kVision], 0u);
}

TEST(CountPrefill, OfOneTokenIsEveryMatrixOnce) {
  const PrefillWork work = CountPrefill(TinyPlan(), 1, LateLayers::kNeeded);
  EXPECT_EQ(work.weights[Category::kExpertWeights], 8u * 3 * 3 * 64 * 128);
  EXPECT_EQ(work.weights[Category::kSharedExperts], 8u * 3 * 64 * 128);
  EXPECT_EQ(work.weights[Category::kAttention], 8u * 118784);
  EXPECT_EQ(work.weights[Category::kGates], 8u * 12 * 128);
  EXPECT_EQ(work.weights[Category::kHyperConnections], 8u * 2 * 24 * 512);
  EXPECT_EQ(work.weights[Category::kEmbedHeadNorm], 1024u * 128);
  // Sources 2, 4, 5: wkv 64 x 128; of ratio 2 also wgate.
  EXPECT_EQ(work.weights[Category::kCompressors], (3u + 2) * 64 * 128);
  // Sources 2, 4, 5, 6: queries 384 x 160, weights 12 x 128; keys 32 x 64 for the one entry, in layer 5.
  EXPECT_EQ(work.weights[Category::kIndexers], 4u * (384 * 160 + 12 * 128) + 32 * 64);
  EXPECT_EQ(work.weights[Category::kEngramProjections], 2u * 640 * 384);
  // One window row in each layer, and in the three of ratio 1 the token's own entry.
  EXPECT_EQ(work.attention, 2u * 4 * 64 * (8 + 3));
  EXPECT_EQ(work.index, 0u);
}

// Layers 5, 6, 7 are late; a window is 32 positions.
TEST(CountPrefill, LateLayersCountTheTokensTheyKeep) {
  constexpr uint64_t kExperts = 3 * 3 * 64 * 128;
  const LayerPlan plan = TinyPlan();
  const PrefillWork all = CountPrefill(plan, 1000, LateLayers::kAll);
  const PrefillWork needed = CountPrefill(plan, 1000, LateLayers::kNeeded);
  EXPECT_EQ(all.weights[Category::kExpertWeights], kExperts * 8 * 1000);
  EXPECT_EQ(needed.weights[Category::kExpertWeights], kExperts * (5 * 1000 + (1 + 2 * 31) + (1 + 31) + 1));
  // The last source's compressor works for every token.
  EXPECT_EQ(needed.weights[Category::kCompressors], all.weights[Category::kCompressors]);
  EXPECT_EQ(needed.weights[Category::kEmbedHeadNorm], 1024u * 128);
  // Layer 6 re-indexes for 32 tokens, each with more than the 48 entries of its 6 candidate blocks.
  EXPECT_LT(needed.index, all.index);
  EXPECT_LT(needed.attention, all.attention);
}

TEST(CountPrefill, IndexScoresStartWhenThereIsAChoice) {
  const LayerPlan plan = TinyPlan();
  // Sixteen entries are taken, all of them: with ratio 1 the 17th is the first to be scored. Layer 5 scores
  // all 17 for the last token, layer 6 the same within its 48 candidates.
  EXPECT_EQ(CountPrefill(plan, 16, LateLayers::kAll).index, 0u);
  EXPECT_EQ(CountPrefill(plan, 17, LateLayers::kAll).index, 12u * 32 * (17 + 17));
}

TEST(StepCost, OfTheReleasedConfigIsThePublishedTable) {
  const std::filesystem::path file = std::filesystem::path(MILLRACE_SHARED_DIR) / "spec/v41-config.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  Result<formats::ModelConfig> config = formats::ReadHfConfig(file);
  ASSERT_TRUE(config.ok()) << config.error().message();
  Result<LayerPlan> plan = LayerPlan::Build(*config);
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  const ByCategory bytes = DecodeBytes(*plan);
  constexpr double kGb = 1e-9;
  const auto gb = [&](Category category) { return kGb * static_cast<double>(bytes[category]); };
  EXPECT_NEAR(gb(Category::kExpertWeights) + gb(Category::kExpertScales), 4.51, 0.005);
  EXPECT_NEAR(gb(Category::kSharedExperts), 1.42, 0.005);
  EXPECT_NEAR(gb(Category::kAttention), 5.06, 0.01);
  EXPECT_NEAR(gb(Category::kEmbedHeadNorm), 1.32, 0.005);
  EXPECT_NEAR(gb(Category::kGates) + gb(Category::kHyperConnections), 0.3, 0.02);
  // 48 rows of 264 bytes.
  EXPECT_EQ(bytes[Category::kEngramTables], 12672u);
  // Two operations a multiply-add.
  const double gflop = 2e-9 * static_cast<double>(CountPrefill(*plan, 1, LateLayers::kAll).total());
  EXPECT_NEAR(gflop, 31, 2);
}

}  // namespace
}  // namespace millrace::rig
