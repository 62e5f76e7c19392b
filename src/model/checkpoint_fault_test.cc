#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/checkpoint.h"
#include "model/checkpoint_testing.h"

// Each test damages one thing about a good checkpoint and expects to be told what, where, what was found and
// what was expected.

namespace millrace::model {
namespace {

using formats::DType;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

CheckpointReport Inspect(const DamagedCheckpoint& checkpoint, ScaleScan scan = ScaleScan::kExceptTables) {
  auto report = Checkpoint::Inspect(checkpoint.path(), scan);
  EXPECT_TRUE(report.ok()) << report.error().message();
  return std::move(report).value();
}

auto Says(Component component, const std::string& file, const std::string& tensor, const std::string& found,
          const std::string& expected) {
  return AllOf(Field("component", &Disagreement::component, component),
               Field("file", &Disagreement::file, file), Field("tensor", &Disagreement::tensor, tensor),
               Field("found", &Disagreement::found, HasSubstr(found)),
               Field("expected", &Disagreement::expected, HasSubstr(expected)));
}

// Open refuses, with each of `parts` in the message.
void ExpectRefused(const DamagedCheckpoint& checkpoint, const std::vector<std::string>& parts) {
  const auto opened = Checkpoint::Open(checkpoint.path());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code(), ErrorCode::kMismatch);
  for (const std::string& part : parts) EXPECT_THAT(opened.error().message(), HasSubstr(part));
}

constexpr char kWkv[] = "layers.3.attn.wkv.weight";

TEST(CheckpointFault, NoneInTheUndamagedCheckpoint) {
  const DamagedCheckpoint checkpoint;
  const CheckpointReport report = Inspect(checkpoint, ScaleScan::kAll);
  EXPECT_THAT(report.disagreements, IsEmpty());
  for (const Component component : {Component::kBackbone, Component::kDraft, Component::kVision})
    EXPECT_TRUE(report.ComponentComplete(component));
  EXPECT_TRUE(Checkpoint::Open(checkpoint.path()).ok());
}

TEST(CheckpointFault, ShardShortOfOneByte) {
  DamagedCheckpoint checkpoint;
  const std::string shard = checkpoint.ShardOf(kWkv);
  const auto size = std::filesystem::file_size(checkpoint.path() / shard);
  std::filesystem::resize_file(checkpoint.path() / shard, size - 1);
  const CheckpointReport report = Inspect(checkpoint);
  ASSERT_THAT(report.disagreements, SizeIs(1)) << "the lost tensors are not listed one by one";
  const Disagreement& fault = report.disagreements[0];
  EXPECT_EQ(fault.component, Component::kBackbone);
  EXPECT_EQ(fault.file, shard);
  EXPECT_THAT(fault.found, HasSubstr(std::to_string(size - 1)));
  EXPECT_THAT(fault.found, HasSubstr(std::to_string(size)));
  ExpectRefused(checkpoint, {shard, std::to_string(size), std::to_string(size - 1)});
}

TEST(CheckpointFault, ShardOfTheDraftShortOfOneByteIsFatalToo) {
  DamagedCheckpoint checkpoint;
  const std::string shard = checkpoint.ShardOf("mtp.1.attn.wkv.weight");
  std::filesystem::resize_file(checkpoint.path() / shard,
                               std::filesystem::file_size(checkpoint.path() / shard) - 1);
  ExpectRefused(checkpoint, {shard});
}

TEST(CheckpointFault, ShardMissing) {
  DamagedCheckpoint checkpoint;
  const std::string shard = checkpoint.ShardOf(kWkv);
  std::filesystem::remove(checkpoint.path() / shard);
  EXPECT_THAT(Inspect(checkpoint).disagreements,
              ElementsAre(Says(Component::kBackbone, shard, "", "no such file", "102 tensors of ")));
  ExpectRefused(checkpoint, {shard, "no such file"});
}

TEST(CheckpointFault, ShardOfADraftStageMissingLeavesTheTextModel) {
  DamagedCheckpoint checkpoint;
  const std::string shard = checkpoint.ShardOf("mtp.1.attn.wkv.weight");
  std::filesystem::remove(checkpoint.path() / shard);
  const CheckpointReport report = Inspect(checkpoint);
  EXPECT_THAT(report.disagreements,
              ElementsAre(Says(Component::kDraft, shard, "", "no such file", "tensors")));
  EXPECT_FALSE(report.ComponentComplete(Component::kDraft));
  EXPECT_TRUE(Checkpoint::Open(checkpoint.path()).ok());
}

TEST(CheckpointFault, TwoShardsSwapped) {
  DamagedCheckpoint checkpoint;
  const std::string a = checkpoint.ShardOf("layers.2.attn.wkv.weight");
  const std::string b = checkpoint.ShardOf(kWkv);
  std::filesystem::rename(checkpoint.path() / a, checkpoint.path() / "aside");
  std::filesystem::rename(checkpoint.path() / b, checkpoint.path() / a);
  std::filesystem::rename(checkpoint.path() / "aside", checkpoint.path() / b);
  const CheckpointReport report = Inspect(checkpoint);
  EXPECT_THAT(report.disagreements,
              Contains(Says(Component::kBackbone, a, kWkv, "the tensor", "it in " + b)));
  EXPECT_THAT(report.disagreements, Contains(Says(Component::kBackbone, b, "layers.2.attn.wkv.weight",
                                                  "the tensor", "it in " + a)));
  EXPECT_THAT(report.disagreements, Not(Contains(Field(&Disagreement::found, HasSubstr("no such")))));
  ExpectRefused(checkpoint, {a + ": layers.3.attn_norm.weight: found the tensor, expected it in " + b,
                             b + ": layers.2.attn_norm.weight: found the tensor, expected it in " + a,
                             "(and 101 more tensors likewise)"});
}

TEST(CheckpointFault, TensorMissingFromIndexAndShard) {
  DamagedCheckpoint checkpoint;
  const std::string shard = checkpoint.ShardOf(kWkv);
  checkpoint.RemoveFromShard(kWkv);
  checkpoint.RemoveFromIndex(kWkv);
  checkpoint.index().total_size -= 64 * 128;
  checkpoint.WriteIndex();
  EXPECT_THAT(Inspect(checkpoint).disagreements,
              ElementsAre(Says(Component::kBackbone, std::string(kIndexFileName), kWkv, "no such tensor",
                               "F8_E4M3 [64, 128]")));
  ExpectRefused(checkpoint, {kWkv, "no such tensor", "F8_E4M3 [64, 128]"});
}

TEST(CheckpointFault, TensorMissingFromTheShardOnly) {
  DamagedCheckpoint checkpoint;
  checkpoint.RemoveFromShard(kWkv);
  const std::string shard = checkpoint.ShardOf(kWkv);
  EXPECT_THAT(
      Inspect(checkpoint).disagreements,
      Contains(Says(Component::kBackbone, shard, kWkv, "no such tensor in the shard", "F8_E4M3 [64, 128]")));
  ExpectRefused(checkpoint, {shard, kWkv});
}

TEST(CheckpointFault, TensorMissingFromTheIndexOnly) {
  DamagedCheckpoint checkpoint;
  const std::string shard = checkpoint.ShardOf(kWkv);
  checkpoint.RemoveFromIndex(kWkv);
  checkpoint.WriteIndex();
  EXPECT_THAT(Inspect(checkpoint).disagreements,
              ElementsAre(Says(Component::kBackbone, shard, kWkv, "a tensor that the index leaves out",
                               "an entry of weight_map")));
  ExpectRefused(checkpoint, {shard, kWkv});
}

TEST(CheckpointFault, TensorMisshaped) {
  DamagedCheckpoint checkpoint;
  checkpoint.EditTensor(kWkv, [](EditableTensor& tensor) { tensor.info.shape = {128, 64}; });
  const std::string shard = checkpoint.ShardOf(kWkv);
  EXPECT_THAT(Inspect(checkpoint).disagreements,
              ElementsAre(Says(Component::kBackbone, shard, kWkv, "F8_E4M3 [128, 64]", "F8_E4M3 [64, 128]")));
  ExpectRefused(checkpoint, {shard + ": " + kWkv + ": found F8_E4M3 [128, 64], expected F8_E4M3 [64, 128]"});
}

TEST(CheckpointFault, TensorMistyped) {
  DamagedCheckpoint checkpoint;
  checkpoint.EditTensor("layers.0.ffn.gate.bias",
                        [](EditableTensor& tensor) { tensor.info.dtype = DType::kI32; });
  EXPECT_THAT(Inspect(checkpoint).disagreements,
              ElementsAre(Says(Component::kBackbone, checkpoint.ShardOf("layers.0.ffn.gate.bias"),
                               "layers.0.ffn.gate.bias", "I32 [12]", "F32 [12]")));
  ExpectRefused(checkpoint, {"layers.0.ffn.gate.bias", "I32", "F32"});
}

TEST(CheckpointFault, ScaleOfTheV4Tile) {
  DamagedCheckpoint checkpoint;
  checkpoint.EditTensor("layers.0.attn.wq_a.scale", [](EditableTensor& tensor) {
    tensor.info.shape = {2, 1};
    tensor.bytes.resize(2);
  });
  EXPECT_THAT(Inspect(checkpoint).disagreements,
              Contains(Says(Component::kBackbone, checkpoint.ShardOf("layers.0.attn.wq_a.scale"),
                            "layers.0.attn.wq_a.scale", "F8_E8M0 [2, 1]", "F8_E8M0 [5, 4]")));
}

TEST(CheckpointFault, TensorInTwoShards) {
  DamagedCheckpoint checkpoint;
  const std::string first = checkpoint.ShardOf(kWkv);
  const std::string second = checkpoint.ShardOf("layers.4.attn.wkv.weight");
  checkpoint.AddToShard(second, kWkv, DType::kF8E4M3, {64, 128});
  checkpoint.index().total_size += 64 * 128;
  checkpoint.WriteIndex();
  EXPECT_THAT(Inspect(checkpoint).disagreements,
              ElementsAre(Says(Component::kBackbone, second, kWkv, "a second copy, the first is in " + first,
                               "one copy")));
  ExpectRefused(checkpoint, {second, kWkv, first});
}

TEST(CheckpointFault, DraftTensorInTwoShardsIsFatal) {
  DamagedCheckpoint checkpoint;
  const std::string tensor = "mtp.1.attn.attn_sink";
  checkpoint.AddToShard(checkpoint.ShardOf("mtp.0.attn.attn_sink"), tensor, DType::kF32, {4});
  ExpectRefused(checkpoint, {tensor, "a second copy"});
}

TEST(CheckpointFault, TensorTwiceInTheIndex) {
  DamagedCheckpoint checkpoint;
  checkpoint.index().weight_map.emplace_back(kWkv, checkpoint.ShardOf(kWkv));
  checkpoint.WriteIndex();
  const auto report = Checkpoint::Inspect(checkpoint.path());
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message(), AllOf(HasSubstr(std::string(kIndexFileName)), HasSubstr(kWkv)));
}

TEST(CheckpointFault, ExtraTensorInALayer) {
  DamagedCheckpoint checkpoint;
  const std::string shard = checkpoint.ShardOf("layers.5.attn.wkv.weight");
  // Only grouping sources have a gate, and layer 5 has ratio 1.
  const std::string extra = "layers.5.attn.compressor.wgate.weight";
  checkpoint.AddToShard(shard, extra, DType::kBF16, {64, 128});
  checkpoint.index().weight_map.emplace_back(extra, shard);
  checkpoint.index().total_size += 64 * 128 * 2;
  checkpoint.WriteIndex();
  EXPECT_THAT(Inspect(checkpoint).disagreements,
              ElementsAre(Says(Component::kBackbone, shard, extra, "BF16 [64, 128]", "no such tensor")));
  ExpectRefused(checkpoint, {shard, extra});
}

TEST(CheckpointFault, UnknownFamily) {
  DamagedCheckpoint checkpoint;
  const std::string shard = checkpoint.ShardOf("head.weight");
  checkpoint.AddToShard(shard, "model.layers.0.weight", DType::kBF16, {2});
  EXPECT_THAT(Inspect(checkpoint).disagreements,
              Contains(Says(Component::kBackbone, shard, "model.layers.0.weight", "BF16 [2]",
                            "the families are embed, head, norm, layers, mtp, vision")));
  ExpectRefused(checkpoint, {"model.layers.0.weight"});
}

TEST(CheckpointFault, IndexEntryWithoutATensor) {
  DamagedCheckpoint checkpoint;
  checkpoint.index().weight_map.emplace_back("layers.9.attn.wkv.weight", checkpoint.ShardOf(kWkv));
  checkpoint.WriteIndex();
  EXPECT_THAT(Inspect(checkpoint).disagreements,
              ElementsAre(Says(Component::kBackbone, std::string(kIndexFileName), "layers.9.attn.wkv.weight",
                               "an entry for " + checkpoint.ShardOf(kWkv), "no such tensor")));
}

TEST(CheckpointFault, TensorsOfDeepSeekV4) {
  DamagedCheckpoint checkpoint;
  const std::string shard = checkpoint.ShardOf(kWkv);
  checkpoint.AddToShard(shard, "hc_head_fn", DType::kF32, {4, 512});
  checkpoint.AddToShard(shard, "layers.3.attn.compressor.ape", DType::kF32, {2, 64});
  checkpoint.AddToShard(shard, "layers.3.ffn.gate.tid2eid", DType::kI64, {1024, 3});
  checkpoint.AddToShard(shard, "mtp.2.markov_w1.weight", DType::kBF16, {1024, 48});
  const CheckpointReport report = Inspect(checkpoint);
  for (const char* name :
       {"hc_head_fn", "layers.3.attn.compressor.ape", "layers.3.ffn.gate.tid2eid", "mtp.2.markov_w1.weight"})
    EXPECT_THAT(report.disagreements,
                Contains(AllOf(Field(&Disagreement::tensor, name),
                               Field(&Disagreement::expected, HasSubstr("the wrong checkpoint family")))));
  ExpectRefused(checkpoint, {"DeepSeek-V4, the wrong checkpoint family"});
}

TEST(CheckpointFault, ConfigOfDeepSeekV4) {
  DamagedCheckpoint checkpoint;
  checkpoint.EditConfig("DeepseekV41ForCausalLM", "DeepseekV4ForCausalLM");
  const auto opened = Checkpoint::Open(checkpoint.path());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code(), ErrorCode::kMismatch);
  EXPECT_THAT(opened.error().message(), AllOf(HasSubstr("config.json"), HasSubstr("DeepSeek-V4 config"),
                                              HasSubstr("expected DeepSeek-V4.1")));
}

TEST(CheckpointFault, ConfigOfAnotherSize) {
  DamagedCheckpoint checkpoint;
  checkpoint.EditConfig("\"q_lora_rank\": 160", "\"q_lora_rank\": 192");
  ExpectRefused(checkpoint,
                {"layers.0.attn.wq_a.weight: found F8_E4M3 [160, 128], expected F8_E4M3 [192, 128]",
                 "layers.7.attn.q_norm.weight: found BF16 [160], expected BF16 [192]"});
}

TEST(CheckpointFault, TotalSizeWrong) {
  DamagedCheckpoint checkpoint;
  const uint64_t right = checkpoint.index().total_size;
  checkpoint.index().total_size = right + 1;
  checkpoint.WriteIndex();
  const CheckpointReport report = Inspect(checkpoint);
  EXPECT_THAT(report.disagreements,
              ElementsAre(Says(Component::kBackbone, std::string(kIndexFileName), "", "metadata.total_size ",
                               ", the bytes of the 1,088 tensors in the shards")));
  EXPECT_EQ(report.found.total.bytes, right);
}

TEST(CheckpointFault, NanInADenseScale) {
  DamagedCheckpoint checkpoint;
  const std::string scale = "layers.3.attn.wo_b.scale";  // [4, 6]
  checkpoint.EditTensor(scale, [](EditableTensor& tensor) {
    tensor.bytes[15] = std::byte{255};
    tensor.bytes[20] = std::byte{255};
  });
  for (const ScaleScan scan : {ScaleScan::kDense, ScaleScan::kExceptTables, ScaleScan::kAll})
    EXPECT_THAT(
        Inspect(checkpoint, scan).disagreements,
        ElementsAre(Says(Component::kBackbone, checkpoint.ShardOf(scale), scale,
                         "scale byte 255 (NaN) at row 2, column 3, 2 in all", "scale bytes 0 to 254")));
  ExpectRefused(checkpoint, {checkpoint.ShardOf(scale), scale, "255"});
}

TEST(CheckpointFault, NanInAnExpertScaleIsLeftToItsUserInADenseScan) {
  DamagedCheckpoint checkpoint;
  const std::string scale = "layers.3.ffn.experts.11.w2.scale";
  checkpoint.EditTensor(scale, [](EditableTensor& tensor) { tensor.bytes.back() = std::byte{255}; });
  EXPECT_THAT(Inspect(checkpoint, ScaleScan::kDense).disagreements, IsEmpty());
  ExpectRefused(checkpoint, {scale, "row 127, column 1"});
}

TEST(CheckpointFault, NanInAnEngramTableIsFoundByAFullScan) {
  DamagedCheckpoint checkpoint;
  const std::string scale = "layers.1.engram.embed.scale";
  checkpoint.EditTensor(scale, [](EditableTensor& tensor) { tensor.bytes[100] = std::byte{255}; });
  EXPECT_TRUE(Checkpoint::Open(checkpoint.path()).ok());
  EXPECT_THAT(
      Inspect(checkpoint, ScaleScan::kAll).disagreements,
      ElementsAre(Says(Component::kBackbone, checkpoint.ShardOf(scale), scale, "row 100, column 0", "254")));
}

TEST(CheckpointFault, DraftGapRefusesDraftingOnly) {
  DamagedCheckpoint checkpoint;
  const std::string tensor = "mtp.2.ffn.experts.5.w1.weight";
  checkpoint.RemoveFromShard(tensor);
  checkpoint.RemoveFromIndex(tensor);
  checkpoint.WriteIndex();  // total_size still counts the tensor, as in a checkpoint that was cut down
  auto opened = Checkpoint::Open(checkpoint.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const CheckpointReport& report = opened->report();
  EXPECT_FALSE(report.ComponentComplete(Component::kDraft));
  EXPECT_TRUE(report.ComponentComplete(Component::kVision));
  EXPECT_THAT(report.ListOf(Component::kDraft, 10), HasSubstr(tensor));
  EXPECT_THAT(report.ListOf(Component::kDraft, 10), HasSubstr("total_size"));
}

TEST(CheckpointFault, DraftTensorsInTheWrongStageCountAgainstTheDraft) {
  DamagedCheckpoint checkpoint;
  const std::string shard = checkpoint.ShardOf("mtp.1.attn.wkv.weight");
  checkpoint.AddToShard(shard, "mtp.1.main_norm.weight", DType::kBF16, {128});
  checkpoint.AddToShard(shard, "mtp.3.attn_norm.weight", DType::kBF16, {128});
  for (const char* tensor : {"mtp.1.main_norm.weight", "mtp.3.attn_norm.weight"})
    checkpoint.index().weight_map.emplace_back(tensor, shard);
  checkpoint.index().total_size += 2 * 128 * 2;
  checkpoint.WriteIndex();
  const CheckpointReport report = Inspect(checkpoint);
  EXPECT_THAT(
      report.disagreements,
      ElementsAre(Says(Component::kDraft, shard, "mtp.1.main_norm.weight", "BF16 [128]", "no such tensor"),
                  Says(Component::kDraft, shard, "mtp.3.attn_norm.weight", "BF16 [128]", "no such tensor")));
  EXPECT_TRUE(Checkpoint::Open(checkpoint.path()).ok());
}

TEST(CheckpointFault, DraftTensorsThatTheConfigDoesNotAnnounceAreNotIgnored) {
  DamagedCheckpoint checkpoint;
  checkpoint.EditConfig("\"num_nextn_predict_layers\": 3", "\"num_nextn_predict_layers\": 0");
  const CheckpointReport report = Inspect(checkpoint);
  EXPECT_FALSE(report.ComponentComplete(Component::kDraft));
  EXPECT_THAT(report.disagreements,
              Contains(Says(Component::kDraft, checkpoint.ShardOf("mtp.0.attn.wkv.weight"),
                            "mtp.0.attn.wkv.weight", "F8_E4M3 [64, 128]", "num_nextn_predict_layers 0")));
}

TEST(CheckpointFault, VisionGapRefusesImagesOnly) {
  DamagedCheckpoint checkpoint;
  checkpoint.RemoveFromShard("image_newline");
  const CheckpointReport report = Inspect(checkpoint);
  EXPECT_FALSE(report.ComponentComplete(Component::kVision));
  EXPECT_TRUE(report.ComponentComplete(Component::kDraft));
  EXPECT_TRUE(Checkpoint::Open(checkpoint.path()).ok());
}

TEST(CheckpointFault, ShardBesideTheIndexThatItDoesNotName) {
  DamagedCheckpoint checkpoint;
  std::filesystem::copy(checkpoint.path() / checkpoint.ShardOf(kWkv),
                        checkpoint.path() / "model-00001-of-00002.safetensors");
  ExpectRefused(checkpoint,
                {"model-00001-of-00002.safetensors", "a second copy", "(and 101 more tensors likewise)"});
}

TEST(CheckpointFault, OtherSafetensorsFilesAreNobodysBusiness) {
  DamagedCheckpoint checkpoint;
  WriteAll(checkpoint.path() / "golden.safetensors", "not even a header");
  EXPECT_THAT(Inspect(checkpoint).disagreements, IsEmpty());
}

TEST(CheckpointFault, SeveralAreReportedTogether) {
  DamagedCheckpoint checkpoint;
  checkpoint.EditTensor(kWkv, [](EditableTensor& tensor) { tensor.info.shape = {32, 256}; });
  checkpoint.EditTensor("layers.6.attn.attn_sink",
                        [](EditableTensor& tensor) { tensor.info.dtype = DType::kI32; });
  checkpoint.EditTensor("layers.0.attn.wkv.scale",
                        [](EditableTensor& tensor) { tensor.bytes[0] = std::byte{255}; });
  checkpoint.RemoveFromIndex("norm.weight");
  checkpoint.RemoveFromShard("mtp.0.main_norm.weight");
  checkpoint.AddToShard(checkpoint.ShardOf("head.weight"), "lm_head.weight", DType::kBF16, {1});
  checkpoint.WriteIndex();
  ExpectRefused(checkpoint,
                {"layers.3.attn.wkv.weight: found F8_E4M3 [32, 256]", "layers.6.attn.attn_sink: found I32",
                 "layers.0.attn.wkv.scale: found scale byte 255", "norm.weight: found a tensor that",
                 "lm_head.weight: found BF16 [1]", "total_size"});
  const CheckpointReport report = Inspect(checkpoint);
  EXPECT_THAT(report.disagreements, SizeIs(7));
  EXPECT_FALSE(report.ComponentComplete(Component::kDraft));
}

TEST(CheckpointFault, ConfigOnlyInTheInferenceFolderIsFound) {
  DamagedCheckpoint checkpoint;
  std::filesystem::create_directory(checkpoint.path() / "inference");
  std::filesystem::rename(checkpoint.path() / "config.json", checkpoint.path() / "inference/config.json");
  EXPECT_THAT(Inspect(checkpoint).disagreements, IsEmpty());
}

TEST(CheckpointFault, NothingToCompareIsAnError) {
  const auto message = [](const std::filesystem::path& dir) {
    const auto report = Checkpoint::Inspect(dir);
    EXPECT_FALSE(report.ok());
    return report.ok() ? std::string() : report.error().message();
  };
  EXPECT_THAT(message("/nonexistent/checkpoint"), HasSubstr("/nonexistent/checkpoint does not exist"));
  DamagedCheckpoint checkpoint;
  std::filesystem::remove(checkpoint.path() / kIndexFileName);
  EXPECT_THAT(message(checkpoint.path()), HasSubstr(std::string(kIndexFileName)));
  std::filesystem::remove(checkpoint.path() / "config.json");
  EXPECT_THAT(message(checkpoint.path()), HasSubstr("neither config.json nor inference/config.json"));
}

TEST(CheckpointFault, ControlCharactersOfNamesDoNotReachTheTerminal) {
  DamagedCheckpoint checkpoint;
  checkpoint.AddToShard(checkpoint.ShardOf(kWkv), "evil\x1b[2J", DType::kBF16, {1});
  ExpectRefused(checkpoint, {"evil\\x1b[2J"});
  const auto opened = Checkpoint::Open(checkpoint.path());
  EXPECT_THAT(opened.error().message(), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace millrace::model
