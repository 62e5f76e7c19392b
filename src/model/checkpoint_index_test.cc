#include "model/checkpoint_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string RefusalOf(std::string_view text) {
  const auto index = ParseCheckpointIndex(text);
  EXPECT_FALSE(index.ok()) << text;
  return index.ok() ? "" : index.error().message();
}

TEST(CheckpointIndex, ReadsWhatItWrites) {
  const CheckpointIndex index = {.weight_map = {{"b.weight", "model-00001-of-00002.safetensors"},
                                                {"a.\"scale", "model-00002-of-00002.safetensors"}},
                                 .total_size = 510'286'023'000};
  const auto read = ParseCheckpointIndex(WriteCheckpointIndex(index));
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(read->weight_map, index.weight_map);
  EXPECT_EQ(read->total_size, index.total_size);
}

TEST(CheckpointIndex, AnEmptyOneIsWellFormed) {
  const auto read = ParseCheckpointIndex(WriteCheckpointIndex({}));
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_TRUE(read->weight_map.empty());
}

TEST(CheckpointIndex, RefusesShardNamesThatLeaveTheDirectory) {
  for (const char* shard : {"\"../x.safetensors\"", "\"/etc/x.safetensors\"", "\"a\\\\b.safetensors\"",
                            "\"x\\u0000.safetensors\"", "\"x.bin\"", "\".safetensors\"", "7"}) {
    EXPECT_THAT(RefusalOf(std::string(R"({"metadata":{"total_size":1},"weight_map":{"t":)") + shard + "}}"),
                AllOf(HasSubstr("\"t\""), HasSubstr("expected a file name")));
  }
}

TEST(CheckpointIndex, RefusesMissingOrOddParts) {
  EXPECT_THAT(RefusalOf("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(RefusalOf(R"({"weight_map":{}})"), HasSubstr("metadata"));
  EXPECT_THAT(RefusalOf(R"({"metadata":{},"weight_map":{}})"), HasSubstr("total_size"));
  EXPECT_THAT(RefusalOf(R"({"metadata":{"total_size":-1},"weight_map":{}})"), HasSubstr("-1"));
  EXPECT_THAT(RefusalOf(R"({"metadata":{"total_size":1.5},"weight_map":{}})"), HasSubstr("total_size"));
  EXPECT_THAT(RefusalOf(R"({"metadata":{"total_size":"1"},"weight_map":{}})"), HasSubstr("total_size"));
  EXPECT_THAT(RefusalOf(R"({"metadata":{"total_size":1}})"), HasSubstr("weight_map"));
}

TEST(CheckpointIndex, RefusesRepeatedTensors) {
  EXPECT_THAT(RefusalOf(R"({"metadata":{"total_size":1},
                            "weight_map":{"twice":"a.safetensors","twice":"b.safetensors"}})"),
              HasSubstr("twice"));
}

TEST(ShardFileName, HasTheReleasedSpelling) {
  EXPECT_EQ(ShardFileName(3, 48), "model-00003-of-00048.safetensors");
  EXPECT_TRUE(IsShardFileName("model-00003-of-00048.safetensors"));
  for (const char* name : {"model-0003-of-00048.safetensors", "model-00003-of-0004x.safetensors",
                           "model.safetensors", "model-00003-of-00048.safetensors.partial", ""})
    EXPECT_FALSE(IsShardFileName(name)) << name;
}

}  // namespace
}  // namespace millrace::model
