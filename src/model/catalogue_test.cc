#include "model/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "formats/hf_config.h"
#include "model/catalogue_table.h"
#include "model/inventory.h"

namespace millrace::model {
namespace {

using formats::DType;
using formats::ModelConfig;
using ::testing::ElementsAre;

// tests/data/v41-config.json is the released config.json (SHA-256
// 8be45ce0476004a3f529fd896115a4a2e800a129ad2d3ec05 b16050f52e21879). The figures of these tests are the
// published ones, or sums of them, of the released checkpoint.
ModelConfig ReleasedConfig() {
  auto config =
      formats::ReadHfConfig(std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/data/v41-config.json");
  EXPECT_TRUE(config.ok()) << config.error().message();
  return std::move(config).value();
}

const std::vector<TensorSpec>& Released() {
  static const std::vector<TensorSpec> catalogue = BuildCatalogue(ReleasedConfig());
  return catalogue;
}

const TensorSpec& Find(const std::vector<TensorSpec>& catalogue, std::string_view name) {
  const auto at = std::find_if(catalogue.begin(), catalogue.end(),
                               [&](const TensorSpec& spec) { return spec.name == name; });
  if (at == catalogue.end()) {
    ADD_FAILURE() << name << " is not in the catalogue";
    return catalogue.front();
  }
  return *at;
}

bool Has(const std::vector<TensorSpec>& catalogue, std::string_view name) {
  return std::any_of(catalogue.begin(), catalogue.end(),
                     [&](const TensorSpec& spec) { return spec.name == name; });
}

TEST(Catalogue, ReleasedConfigGivesThePublishedCountAndBytes) {
  const Inventory inventory = CountCatalogue(Released());
  EXPECT_EQ(inventory.total.tensors, 96'085u);
  EXPECT_EQ(inventory.total.bytes, 510'286'023'000u);
}

TEST(Catalogue, ReleasedConfigGivesThePublishedSplitByType) {
  std::map<DType, uint64_t> tensors;
  for (const auto& [dtype, tally] : CountCatalogue(Released()).by_dtype) tensors[dtype] = tally.tensors;
  const std::map<DType, uint64_t> published = {{DType::kBF16, 520},
                                               {DType::kF32, 387},
                                               {DType::kF8E4M3, 357},
                                               {DType::kI8, 47'232},
                                               {DType::kF8E8M0, 47'589}};
  EXPECT_EQ(tensors, published);
}

TEST(Catalogue, ReleasedConfigGivesThePublishedBytesByCategory) {
  const Inventory inventory = CountCatalogue(Released());
  const auto bytes = [&](Category category) { return inventory.Of(category).bytes; };
  EXPECT_EQ(bytes(Category::kExpertWeights), 271'790'899'200u);
  EXPECT_EQ(bytes(Category::kExpertScales), 16'986'931'200u);
  EXPECT_EQ(bytes(Category::kAttention), 5'069'721'600u);
  EXPECT_EQ(bytes(Category::kSharedExperts), 1'416'960'000u);
  EXPECT_EQ(bytes(Category::kGates), 157'409'280u);
  EXPECT_EQ(bytes(Category::kHyperConnections), 157'295'040u);
  EXPECT_EQ(bytes(Category::kIndexers), 45'130'752u);
  EXPECT_EQ(bytes(Category::kCompressors), 36'704'256u);
  EXPECT_EQ(bytes(Category::kEmbedHeadNorm), 2'647'664'640u);
  EXPECT_EQ(bytes(Category::kEngramTables), 202'758'032'400u);
  EXPECT_EQ(bytes(Category::kEngramProjections), 315'043'840u);
  EXPECT_EQ(bytes(Category::kDraftExperts), 7'219'445'760u);
  EXPECT_EQ(bytes(Category::kDraftOther), 713'428'872u);
  EXPECT_EQ(bytes(Category::kVision), 970'536'960u);
  uint64_t in_layers = 0;
  for (const Category category :
       {Category::kAttention, Category::kSharedExperts, Category::kGates, Category::kHyperConnections,
        Category::kIndexers, Category::kCompressors, Category::kLayerNorms})
    in_layers += bytes(category);
  EXPECT_EQ(in_layers, 6'884'040'128u);
}

TEST(Catalogue, ReleasedConfigGivesThePublishedCountByFamily) {
  const Inventory inventory = CountCatalogue(Released());
  const auto tensors = [&](Category category) { return inventory.Of(category).tensors; };
  EXPECT_EQ(tensors(Category::kExpertWeights) + tensors(Category::kExpertScales), 92'160u);
  EXPECT_EQ(tensors(Category::kEngramTables), 4u);
  EXPECT_EQ(tensors(Category::kDraftExperts), 2'304u);
  EXPECT_EQ(tensors(Category::kDraftExperts) + tensors(Category::kDraftOther), 2'401u);
  EXPECT_EQ(tensors(Category::kVision), 266u);
  std::map<Component, uint64_t> by_component;
  for (const TensorSpec& spec : Released()) ++by_component[spec.component];
  EXPECT_EQ(by_component[Component::kBackbone], 93'418u);
}

TEST(Catalogue, ReleasedConfigGivesThePublishedShards) {
  std::map<int, Tally> shards;
  for (const TensorSpec& spec : Released()) shards[spec.shard].Add(spec.bytes());
  ASSERT_EQ(shards.size(), 48u);
  const auto expect = [&](int shard, uint64_t tensors, uint64_t bytes) {
    EXPECT_EQ(shards[shard].tensors, tensors) << "shard " << shard;
    EXPECT_EQ(shards[shard].bytes, bytes) << "shard " << shard;
  };
  // 970,536,960 bytes of vision less the three span embeddings, which lie with the embedding.
  expect(1, 263, 970'536'960 - 3 * 5120 * 2);
  expect(2, 4, 129'280ull * 5120 * 2 + 3 * 5120 * 2);
  for (int l = 0; l < 40; ++l) {
    if (l == 2 || l == 8 || l == 14) {
      expect(l + 3, 2'342, 7'405'694'680);
    } else if (l == 20) {
      expect(l + 3, 2'341, 7'400'451'800);
    } else if (l == 24 || l == 28 || l == 32 || l == 36) {
      expect(l + 3, 2'337, 7'395'076'568);
    } else {
      expect(l + 3, 2'334, 7'389'500'888);
    }
  }
  expect(43, 2, 129'280ull * 5120 * 2 + 5120 * 2);
  expect(44, 801, 2'652'643'800);
  expect(45, 798, 2'573'913'560);
  expect(46, 802, 2'706'317'272);
  const uint64_t projections = 315'043'840 / 2;
  expect(47, 6, 384'006'168ull * 264 + projections);
  expect(48, 6, 384'016'682ull * 264 + projections);
}

// Bytes a rank holds when tensors are divided as the catalogue says: the derived figures of the memory plan.
TEST(Catalogue, SplitGivesThePublishedBytesPerRank) {
  const auto dense_gib = [](uint64_t ranks) {
    double bytes = 0;
    for (const TensorSpec& spec : Released()) {
      const bool dense = spec.component == Component::kBackbone && spec.category >= Category::kAttention &&
                         spec.category <= Category::kLayerNorms;
      if (!dense) continue;
      const uint64_t share = spec.split == Split::kReplicated ? 1 : ranks;
      bytes += static_cast<double>(spec.bytes()) / static_cast<double>(share);
    }
    return bytes / (1 << 30);
  };
  EXPECT_NEAR(dense_gib(1), 6.411, 5e-4);
  EXPECT_NEAR(dense_gib(2), 3.541, 5e-4);
  EXPECT_NEAR(dense_gib(8), 1.388, 5e-4);
  EXPECT_NEAR(dense_gib(16), 1.030, 5e-4);
}

TEST(Catalogue, OneReleasedExpertHasThePublishedBytes) {
  uint64_t bytes = 0;
  for (const TensorSpec& spec : Released())
    if (spec.component == Component::kBackbone && spec.layer == 7 && spec.expert == 383)
      bytes += spec.bytes();
  EXPECT_EQ(bytes, 18'800'640u);
}

TEST(Catalogue, ReleasedShapesAndTypes) {
  struct Expected {
    std::string_view name;
    DType dtype;
    std::vector<int64_t> shape;
  };
  const Expected expected[] = {
      {"embed.weight", DType::kBF16, {129280, 5120}},
      {"norm.weight", DType::kBF16, {5120}},
      {"layers.39.attn.wq_a.weight", DType::kF8E4M3, {1280, 5120}},
      {"layers.39.attn.wq_a.scale", DType::kF8E8M0, {40, 160}},
      {"layers.0.attn.wq_b.weight", DType::kF8E4M3, {32768, 1280}},
      {"layers.0.attn.wo_a.weight", DType::kF8E4M3, {8192, 4096}},
      {"layers.0.attn.wo_a.scale", DType::kF8E8M0, {256, 128}},
      {"layers.0.attn.wo_b.weight", DType::kF8E4M3, {5120, 8192}},
      {"layers.0.attn.attn_sink", DType::kF32, {64}},
      {"layers.0.ffn.gate.bias_vl", DType::kF32, {384}},
      {"layers.0.ffn.experts.17.w1.weight", DType::kI8, {2304, 2560}},
      {"layers.0.ffn.experts.17.w1.scale", DType::kF8E8M0, {2304, 160}},
      {"layers.0.ffn.experts.17.w2.weight", DType::kI8, {5120, 1152}},
      {"layers.0.ffn.experts.17.w2.scale", DType::kF8E8M0, {5120, 72}},
      {"layers.0.ffn.shared_experts.w2.scale", DType::kF8E8M0, {160, 72}},
      {"layers.0.hc_ffn_fn", DType::kF32, {24, 20480}},
      {"layers.0.hc_attn_scale", DType::kF32, {3}},
      {"layers.14.attn.compressor.wgate.weight", DType::kBF16, {512, 5120}},
      {"layers.20.attn.indexer.wk.weight", DType::kBF16, {128, 512}},
      {"layers.24.attn.indexer.wq_b.scale", DType::kF8E8M0, {128, 40}},
      {"layers.36.attn.indexer.weights_proj.weight", DType::kBF16, {32, 5120}},
      {"layers.1.engram.embed.weight", DType::kF8E4M3, {384'006'168, 256}},
      {"layers.14.engram.embed.scale", DType::kF8E8M0, {384'016'682, 8}},
      {"layers.1.engram.wkv.weight", DType::kF8E4M3, {25600, 6144}},
      {"layers.1.engram.wkv.scale", DType::kF8E8M0, {800, 192}},
      {"layers.14.engram.k_weight", DType::kBF16, {4, 5120}},
      {"mtp.1.ffn.gate.weight", DType::kBF16, {128, 5120}},
      {"mtp.0.main_proj.weight", DType::kF8E4M3, {5120, 15360}},
      {"mtp.0.main_proj.scale", DType::kF8E8M0, {160, 480}},
      {"mtp.2.markov_head.head.weight", DType::kBF16, {129280, 256}},
      {"mtp.2.confidence_head.proj.weight", DType::kBF16, {1, 5376}},
      {"vision.patch_embed.proj.weight", DType::kBF16, {1024, 588}},
      {"vision.blocks.31.attn.wqkv.bias", DType::kBF16, {3072}},
      {"vision.blocks.0.mlp.w1.weight", DType::kBF16, {5632, 1024}},
      {"vision.blocks.0.mlp.w2.weight", DType::kBF16, {1024, 2816}},
      {"aligner.w1.weight", DType::kBF16, {5120, 9216}},
      {"image_newline", DType::kBF16, {5120}},
  };
  for (const Expected& tensor : expected) {
    const TensorSpec& spec = Find(Released(), tensor.name);
    EXPECT_EQ(spec.dtype, tensor.dtype) << tensor.name;
    EXPECT_EQ(spec.shape, tensor.shape) << tensor.name;
  }
}

TEST(Catalogue, SelectedLayersOwnWhatTheConfigLists) {
  std::map<TensorKind, std::set<int>> owners;
  for (const TensorSpec& spec : Released())
    if (spec.component == Component::kBackbone && spec.layer && !spec.expert)
      owners[spec.kind].insert(*spec.layer);
  EXPECT_THAT(owners[TensorKind::kCompressorWkv], ElementsAre(2, 8, 14, 20));
  EXPECT_THAT(owners[TensorKind::kCompressorWgate], ElementsAre(2, 8, 14));
  EXPECT_THAT(owners[TensorKind::kIndexerWk], ElementsAre(2, 8, 14, 20));
  EXPECT_THAT(owners[TensorKind::kIndexerWqB], ElementsAre(2, 8, 14, 20, 24, 28, 32, 36));
  EXPECT_THAT(owners[TensorKind::kEngramWkv], ElementsAre(1, 14));
  EXPECT_EQ(owners[TensorKind::kWkv].size(), 40u);
}

TEST(Catalogue, NamesAreUniqueAndEqualTensorName) {
  std::set<std::string> names;
  for (const TensorSpec& spec : Released()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    ASSERT_EQ(spec.name, TensorName(spec.kind, spec.is_scale, spec.component, spec.layer.value_or(0),
                                    spec.expert.value_or(0)));
  }
}

TEST(Catalogue, EveryKindOccursInTheReleasedModel) {
  std::set<TensorKind> kinds;
  for (const TensorSpec& spec : Released()) kinds.insert(spec.kind);
  EXPECT_EQ(kinds.size(), CatalogueRows().size());
}

TEST(Catalogue, OnlyQuantisedTensorsHaveScales) {
  for (const TensorSpec& spec : Released()) {
    if (!spec.is_scale) continue;
    ASSERT_NE(ScaleLayoutOf(spec.kind), ScaleLayout::kNone) << spec.name;
    ASSERT_EQ(spec.dtype, DType::kF8E8M0) << spec.name;
  }
  EXPECT_EQ(ScaleLayoutOf(TensorKind::kCompressorWkv), ScaleLayout::kNone);
  EXPECT_EQ(ScaleLayoutOf(TensorKind::kWkv), ScaleLayout::kTile32);
  EXPECT_EQ(ScaleLayoutOf(TensorKind::kExpertW2), ScaleLayout::kRow32);
  EXPECT_EQ(ScaleLayoutOf(TensorKind::kEngramEmbed), ScaleLayout::kRow32);
}

TEST(Catalogue, TextOnlyConfigHasNeitherVisionNorDrafts) {
  ModelConfig config = ReleasedConfig();
  config.vision_config.reset();
  config.num_nextn_predict_layers = 0;
  const std::vector<TensorSpec> catalogue = BuildCatalogue(config);
  EXPECT_EQ(catalogue.size(), 93'418u);
  EXPECT_FALSE(Has(catalogue, "image_start"));
  EXPECT_EQ(Find(catalogue, "embed.weight").shard, 1);
  EXPECT_EQ(Find(catalogue, "layers.14.engram.wkv.weight").shard, 44);
}

TEST(Catalogue, FollowsTheConfigAndNotTheReleasedNumbers) {
  ModelConfig config = ReleasedConfig();
  config.num_hidden_layers = 3;
  config.compress_ratios = {1, 2, 4};
  config.kv_source_layer_ids = {0, 2};
  config.index_source_layer_ids = {0, 1};
  config.engram_layer_ids = {2};
  config.engram_num_embeddings = {1000};
  config.num_nextn_predict_layers = 1;
  config.n_routed_experts = 5;
  config.dspark_n_routed_experts = 2;
  config.dspark_target_layer_ids = {0, 2};
  config.hidden_size = 48;  // not a multiple of the scale block
  const std::vector<TensorSpec> catalogue = BuildCatalogue(config);
  EXPECT_FALSE(Has(catalogue, "layers.3.attn.wkv.weight"));
  EXPECT_FALSE(Has(catalogue, "layers.0.attn.compressor.wgate.weight"));
  EXPECT_TRUE(Has(catalogue, "layers.2.attn.compressor.wgate.weight"));
  EXPECT_FALSE(Has(catalogue, "layers.0.ffn.experts.5.w1.weight"));
  EXPECT_THAT(Find(catalogue, "layers.2.engram.embed.scale").shape, ElementsAre(1000, 8));
  EXPECT_THAT(Find(catalogue, "layers.0.attn.wkv.scale").shape, ElementsAre(16, 2));
  EXPECT_THAT(Find(catalogue, "mtp.0.main_proj.weight").shape, ElementsAre(48, 96));
  EXPECT_TRUE(Has(catalogue, "mtp.0.norm.weight")) << "a single stage is first and last";
  EXPECT_FALSE(Has(catalogue, "mtp.0.ffn.experts.2.w1.weight"));
}

TEST(TensorName, GivesTheReleasedSpelling) {
  EXPECT_EQ(TensorName(TensorKind::kEmbed, false), "embed.weight");
  EXPECT_EQ(TensorName(TensorKind::kWkv, true, Component::kBackbone, 12), "layers.12.attn.wkv.scale");
  EXPECT_EQ(TensorName(TensorKind::kWkv, false, Component::kDraft, 2), "mtp.2.attn.wkv.weight");
  EXPECT_EQ(TensorName(TensorKind::kExpertW2, false, Component::kBackbone, 3, 41),
            "layers.3.ffn.experts.41.w2.weight");
  EXPECT_EQ(TensorName(TensorKind::kVisionWoBias, false, Component::kVision, 9),
            "vision.blocks.9.attn.wo.bias");
  EXPECT_EQ(TensorName(TensorKind::kDraftMarkovHead, false, Component::kDraft, 2),
            "mtp.2.markov_head.head.weight");
}

}  // namespace
}  // namespace millrace::model
