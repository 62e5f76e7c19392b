#include "model/synthetic_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "model/checkpoint.h"
#include "model/checkpoint_testing.h"
#include "model/engram_hash.h"
#include "model/layer_plan.h"
#include "model/synthetic_tokenizer.h"

namespace millrace::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

Result<SyntheticSummary> WriteTiny(const fs::path& dir, uint64_t seed, int n_threads,
                                   bool overwrite = false) {
  ThreadPool pool(n_threads);
  return WriteSyntheticCheckpoint(
      {.preset = SyntheticPreset::kTiny, .seed = seed, .dir = dir, .overwrite = overwrite}, pool);
}

TEST(SyntheticCheckpoint, TinyOpensWithEveryComponent) {
  const auto checkpoint = Checkpoint::Open(TinyCheckpoint(), ScaleScan::kAll);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_TRUE(checkpoint->report().disagreements.empty());
  EXPECT_TRUE(checkpoint->report().ComponentComplete(Component::kDraft));
  EXPECT_TRUE(checkpoint->report().ComponentComplete(Component::kVision));
  EXPECT_LT(checkpoint->report().found.total.bytes, 10'000'000u);
}

TEST(SyntheticCheckpoint, TinyHasEveryKindOfTensor) {
  const auto model = MakeSyntheticModel(SyntheticPreset::kTiny);
  ASSERT_TRUE(model.ok());
  std::set<TensorKind> kinds;
  for (const TensorSpec& spec : BuildCatalogue(model->config)) kinds.insert(spec.kind);
  EXPECT_EQ(kinds.size(), static_cast<size_t>(TensorKind::kImageNewline) + 1);
}

TEST(SyntheticCheckpoint, SameSeedGivesTheSameBytesWithAnyNumberOfThreads) {
  const ScratchDirectory again;
  const auto summary = WriteTiny(again.path(), 1, 3);
  ASSERT_TRUE(summary.ok()) << summary.error().message();
  EXPECT_EQ(summary->files.back(), kIndexFileName);
  size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(TinyCheckpoint())) {
    ++files;
    EXPECT_EQ(ReadAll(again.path() / entry.path().filename()), ReadAll(entry.path())) << entry.path();
  }
  EXPECT_EQ(summary->files.size(), files);
}

TEST(SyntheticCheckpoint, AnotherSeedChangesEveryShardAndNothingElse) {
  const ScratchDirectory other;
  ASSERT_TRUE(WriteTiny(other.path(), 2, 2).ok());
  for (const fs::directory_entry& entry : fs::directory_iterator(TinyCheckpoint())) {
    const bool same = ReadAll(other.path() / entry.path().filename()) == ReadAll(entry.path());
    EXPECT_EQ(same, !IsShardFileName(entry.path().filename().string())) << entry.path();
  }
}

TEST(SyntheticCheckpoint, ShardsFollowTheReleasedAssignment) {
  const auto index = ReadCheckpointIndex(TinyCheckpoint());
  ASSERT_TRUE(index.ok());
  const std::map<std::string, std::string> shard(index->weight_map.begin(), index->weight_map.end());
  EXPECT_EQ(shard.at("vision.norm.weight"), "model-00001-of-00016.safetensors");
  EXPECT_EQ(shard.at("image_start"), "model-00002-of-00016.safetensors");
  EXPECT_EQ(shard.at("embed.weight"), "model-00002-of-00016.safetensors");
  EXPECT_EQ(shard.at("layers.0.ffn.experts.3.w1.weight"), "model-00003-of-00016.safetensors");
  EXPECT_EQ(shard.at("layers.1.attn.wkv.scale"), "model-00004-of-00016.safetensors");
  EXPECT_EQ(shard.at("norm.weight"), "model-00011-of-00016.safetensors");
  EXPECT_EQ(shard.at("mtp.2.norm.weight"), "model-00014-of-00016.safetensors");
  EXPECT_EQ(shard.at("layers.1.engram.wkv.weight"), "model-00015-of-00016.safetensors");
  EXPECT_EQ(shard.at("layers.4.engram.embed.scale"), "model-00016-of-00016.safetensors");
}

TEST(SyntheticCheckpoint, TensorsAreAlignedToTheirElements) {
  for (const fs::directory_entry& entry : fs::directory_iterator(TinyCheckpoint())) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = formats::SafetensorsFile::Open(entry.path());
    ASSERT_TRUE(file.ok());
    for (const formats::TensorInfo& info : file->tensors())
      EXPECT_EQ((file->header().payload_offset + info.begin) % formats::DTypeBytes(info.dtype), 0u)
          << info.name;
  }
}

class Preset : public ::testing::TestWithParam<SyntheticPreset> {};

// Config, tokenizer and hash of every preset agree, without writing gigabytes.
TEST_P(Preset, ConfigTokenizerAndHashAgree) {
  auto model = MakeSyntheticModel(GetParam());
  ASSERT_TRUE(model.ok()) << model.error().message();
  const formats::ModelConfig& config = model->config;
  const auto reread = formats::ParseHfConfig(formats::WriteHfConfig(config));
  ASSERT_TRUE(reread.ok()) << reread.error().message();
  const auto plan = LayerPlan::Build(*reread);
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  EXPECT_EQ(static_cast<int64_t>(model->tokenizer.tokens.size()), config.vocab_size);
  const auto tokenizer = formats::ParseTokenizerJson(formats::WriteTokenizerJson(model->tokenizer));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  EXPECT_EQ(*tokenizer, model->tokenizer);
  auto classes = ComputeTokenClasses(*tokenizer, config.vocab_size);
  ASSERT_TRUE(classes.ok()) << classes.error().message();
  const auto hash = EngramHash::Build(config, std::move(classes).value());
  EXPECT_TRUE(hash.ok()) << hash.error().message();
}

INSTANTIATE_TEST_SUITE_P(All, Preset, ::testing::ValuesIn(kSyntheticPresets), [](const auto& preset) {
  std::string name(PresetName(preset.param));
  std::erase(name, '-');
  return name;
});

TEST(SyntheticPreset, BenchHasRealMatricesInAboutOneAndAHalfGigabytes) {
  const auto model = MakeSyntheticModel(SyntheticPreset::kBench);
  ASSERT_TRUE(model.ok());
  const std::vector<TensorSpec> catalogue = BuildCatalogue(model->config);
  const Inventory inventory = CountCatalogue(catalogue);
  EXPECT_GT(inventory.total.bytes, 1'400'000'000u);
  EXPECT_LT(inventory.total.bytes, 1'600'000'000u);
  uint64_t expert = 0;
  for (const TensorSpec& spec : catalogue)
    if (spec.layer == 0 && spec.expert == 0) expert += spec.bytes();
  EXPECT_EQ(expert, 18'800'640u) << "a released expert";
}

TEST(SyntheticPreset, RealLayerHasTheReleasedShapes) {
  const auto model = MakeSyntheticModel(SyntheticPreset::kRealLayer);
  ASSERT_TRUE(model.ok());
  const auto released = formats::ReadHfConfig(fs::path(MILLRACE_SOURCE_DIR) / "tests/data/v41-config.json");
  ASSERT_TRUE(released.ok());
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const TensorSpec& spec : BuildCatalogue(*released))
    shapes[TensorName(spec.kind, spec.is_scale, spec.component)] = spec.shape;
  for (const TensorSpec& spec : BuildCatalogue(model->config)) {
    // Fewer experts and engram rows than the release, and nothing else.
    if (spec.kind == TensorKind::kGate || spec.kind == TensorKind::kGateBias ||
        spec.kind == TensorKind::kGateBiasVl || spec.kind == TensorKind::kEngramEmbed)
      continue;
    EXPECT_EQ(spec.shape, shapes.at(TensorName(spec.kind, spec.is_scale, spec.component))) << spec.name;
  }
}

TEST(SyntheticTokenizer, HasWordsBytesAndControlTokensByName) {
  const formats::TokenizerData tokenizer = MakeSyntheticTokenizer(1024);
  EXPECT_EQ(tokenizer.tokens[0], "<｜begin▁of▁sentence｜>");
  EXPECT_EQ(tokenizer.tokens[1], "<｜end▁of▁sentence｜>");
  EXPECT_EQ(tokenizer.tokens[2], "<｜▁pad▁｜>");
  EXPECT_THAT(tokenizer.tokens, ::testing::Contains("Ġthe"));
  EXPECT_GT(tokenizer.merges.size(), 600u);
  EXPECT_EQ(tokenizer.tokens.size(), 1024u);
  for (const char* name : {"<｜System｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜",
                           "<｜deepseek_image｜>", "<｜latest_reminder｜>", "<｜fim▁begin｜>"})
    EXPECT_EQ(tokenizer.tokens[static_cast<size_t>(ControlTokenId(tokenizer, name))], name);
  EXPECT_NE(ControlTokenId(tokenizer, "<think>"), 128821) << "ids differ from the released ones";
}

TEST(SyntheticCheckpoint, AFullDirectoryIsRefusedUnlessToldToReplace) {
  const ScratchDirectory dir;
  WriteAll(dir.path() / "notes.txt", "mine");
  const auto refused = WriteTiny(dir.path(), 1, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr(dir.path().string()), HasSubstr("notes.txt"), HasSubstr("--force")));
  EXPECT_FALSE(fs::exists(dir.path() / "config.json"));

  WriteAll(dir.path() / "model-00001-of-00099.safetensors", "an old checkpoint's");
  ASSERT_TRUE(WriteTiny(dir.path(), 1, 1, true).ok());
  EXPECT_TRUE(Checkpoint::Open(dir.path()).ok()) << "the old shard is gone";
  EXPECT_EQ(ReadAll(dir.path() / "notes.txt"), "mine");
}

TEST(SyntheticCheckpoint, AFileInPlaceOfTheDirectoryIsRefused) {
  const ScratchDirectory dir;
  WriteAll(dir.path() / "file", "x");
  const auto refused = WriteTiny(dir.path() / "file", 1, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("expected a directory"));
}

// A disk that gives out is played by a directory in a shard's place.
TEST(SyntheticCheckpoint, AFailedWriteLeavesNothingThatLooksWhole) {
  const ScratchDirectory dir;
  fs::create_directories(dir.path() / "model-00009-of-00016.safetensors.partial/x");
  const auto failed = WriteTiny(dir.path(), 1, 2, true);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code(), ErrorCode::kIo);
  EXPECT_THAT(failed.error().message(), HasSubstr("model-00009-of-00016.safetensors"));
  size_t left = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir.path())) {
    EXPECT_EQ(entry.path().filename(), "model-00009-of-00016.safetensors.partial");
    ++left;
  }
  EXPECT_EQ(left, 1u);
}

}  // namespace
}  // namespace millrace::model
