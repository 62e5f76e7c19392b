#include "formats/hf_config.h"

#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "formats/hf_config_table.h"
#include "formats/scratch_dir.h"

namespace millrace::formats {
namespace {

namespace json = boost::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::filesystem::path TestFile(const std::string& name) {
  return std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/data/config" / name;
}

ModelConfig Released() {
  auto config = ReadHfConfig(TestFile("released.json"));
  EXPECT_TRUE(config.ok()) << config.error().message();
  return std::move(config).value();
}

std::string ErrorOf(const json::value& file) {
  const auto config = ParseHfConfig(json::serialize(file));
  return config.ok() ? "accepted" : config.error().message();
}

// The file `name` with one change.
json::value Changed(const std::string& name, const std::function<void(json::object&)>& change) {
  json::value file = json::parse(ReadBytes(TestFile(name)));
  change(file.get_object());
  return file;
}

// The object of the composite layout that holds the section's keys.
json::object& SectionOf(json::object& top, ConfigSection section) {
  switch (section) {
    case ConfigSection::kQuantization:
      return top.at("quantization_config").get_object();
    case ConfigSection::kText:
      return top.at("text_config").get_object();
    case ConfigSection::kRope:
      return top.at("text_config").get_object().at("rope_scaling").get_object();
    case ConfigSection::kVision:
      return top.at("vision_config").get_object();
    default:
      return top;
  }
}

std::string PathOf(const ConfigKey& key) {
  return std::string(ConfigSectionPrefix(key.section)) + std::string(key.name);
}

TEST(HfConfig, TheReleasedFileIsReadKeyByKey) {
  const ModelConfig config = Released();
  EXPECT_EQ(config.architecture, "DeepseekV41ForCausalLM");
  EXPECT_EQ(config.eos_token_id, 1);
  EXPECT_EQ(config.image_token_id, 129264);
  EXPECT_THAT(config.weight_block_size, ElementsAre(32, 32));
  EXPECT_EQ(config.vocab_size, 129280);
  EXPECT_EQ(config.hidden_size, 5120);
  EXPECT_EQ(config.num_attention_heads, 64);
  EXPECT_EQ(config.swiglu_limit, 10.0);
  EXPECT_EQ(config.rms_norm_eps, 1e-20);
  EXPECT_EQ(config.rope_scaling->factor, 16);
  EXPECT_EQ(config.rope_scaling->original_max_position_embeddings, 65536);
  EXPECT_EQ(config.gate_temp, 1.0);
  EXPECT_EQ(config.compress_ratios.size(), 40u);
  EXPECT_EQ(config.compress_ratios[19], 2);
  EXPECT_EQ(config.compress_ratios[20], 1);
  EXPECT_THAT(config.kv_source_layer_ids, ElementsAre(2, 8, 14, 20));
  EXPECT_THAT(config.engram_num_embeddings, ElementsAre(384006168, 384016682));
  EXPECT_EQ(config.num_nextn_predict_layers, 3);
  EXPECT_THAT(config.dspark_target_layer_ids, ElementsAre(37, 38, 39));
  EXPECT_EQ(config.vision_config->min_pixels, 295936);
  EXPECT_FALSE(config.vision_config->max_wh_ratio.has_value());
  EXPECT_THAT(config.unknown_keys, ElementsAre());
}

TEST(HfConfig, TheReleasedFileIsWrittenByteForByte) {
  EXPECT_EQ(WriteHfConfig(Released()), ReadBytes(TestFile("released.json")));
}

TEST(HfConfig, TheFlatSpellingGivesTheSameConfig) {
  const auto flat = ReadHfConfig(TestFile("flat.json"));
  ASSERT_TRUE(flat.ok()) << flat.error().message();
  ModelConfig expected = Released();
  expected.image_token_id.reset();  // the one fact that a flat file does not hold
  EXPECT_EQ(*flat, expected);
}

TEST(HfConfig, EveryConfigOfTheGoldensRoundTrips) {
  const std::filesystem::path golden = std::filesystem::path(MILLRACE_SHARED_DIR) / "golden";
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << golden << " is missing";
  for (const char* name :
       {"v41/v41-micro", "v41/v41-small", "v41-dspark/micro", "v41-dspark/small", "v41-vision/tiny"}) {
    const auto config = ReadHfConfig(golden / name);
    ASSERT_TRUE(config.ok()) << config.error().message();
    EXPECT_EQ(config->compress_ratios.size(), 8u) << name;
    EXPECT_THAT(config->unknown_keys, ElementsAre()) << name;
    const auto again = ParseHfConfig(WriteHfConfig(*config));
    ASSERT_TRUE(again.ok()) << name << ": " << again.error().message();
    EXPECT_EQ(*again, *config) << name;
  }
}

TEST(HfConfig, TheMiniCheckpointsConfigIsReadFromItsDirectory) {
  const auto config = ReadHfConfig(std::filesystem::path(MILLRACE_SOURCE_DIR) / "models/mini");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->hidden_size, 128);
  EXPECT_FALSE(config->vision_config.has_value());
  EXPECT_EQ(*ParseHfConfig(WriteHfConfig(*config)), *config);
}

TEST(HfConfig, OptionalPartsMayBeAbsentAndRoundTrip) {
  const json::value file = Changed("released.json", [](json::object& top) {
    top.erase("vision_config");
    top.erase("image_token_id");
    json::object& text = top.at("text_config").get_object();
    text["rope_scaling"] = nullptr;
    text["engram_layer_ids"] = json::array();
    text["num_nextn_predict_layers"] = 0;
    text["gate_temp"] = 0.5;
    for (const ConfigKey& key : ConfigKeys()) {
      if (key.presence == ConfigPresence::kWithDraft || key.presence == ConfigPresence::kWithEngram) {
        text.erase(key.name);
      }
    }
  });
  const auto config = ParseHfConfig(json::serialize(file));
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_FALSE(config->rope_scaling.has_value());
  EXPECT_EQ(config->gate_temp, 0.5);
  const auto again = ParseHfConfig(WriteHfConfig(*config));
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(*again, *config);
}

TEST(HfConfig, EveryRequiredKeyIsMissedByName) {
  for (const ConfigKey& key : ConfigKeys()) {
    const json::value file =
        Changed("released.json", [&key](json::object& top) { SectionOf(top, key.section).erase(key.name); });
    const bool may_be_absent =
        key.presence == ConfigPresence::kOptional || key.presence == ConfigPresence::kNullable;
    if (key.name == "text_config") continue;  // without it, the file is none of ours
    EXPECT_EQ(ErrorOf(file), may_be_absent ? "accepted" : PathOf(key) + " is missing") << key.name;
  }
}

TEST(HfConfig, EveryRequiredKeyOfTheFlatSpellingIsMissedByName) {
  for (const ConfigKey& key : ConfigKeys()) {
    const json::value whole = Changed("flat.json", [](json::object&) {});
    if (!whole.get_object().contains(key.flat()) || key.kind == ConfigKind::kObject ||
        key.kind == ConfigKind::kUnused) {
      continue;
    }
    const json::value file = Changed("flat.json", [&key](json::object& top) { top.erase(key.flat()); });
    const bool may_be_absent = key.presence == ConfigPresence::kNullable ||
                               key.presence == ConfigPresence::kRequiredInComposite ||
                               key.presence == ConfigPresence::kOptional;
    EXPECT_EQ(ErrorOf(file), may_be_absent ? "accepted" : std::string(key.flat()) + " is missing")
        << key.name;
  }
}

TEST(HfConfig, EveryKeyRefusesAnotherTypeByName) {
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.kind == ConfigKind::kUnused || key.name == "architectures" || key.name == "model_type") continue;
    for (const json::value& wrong :
         {json::value("x"), json::value(json::array{"x"}), json::value(-1), json::value(0.5e-300)}) {
      if (key.kind == ConfigKind::kReal && wrong.is_double()) continue;
      const json::value file =
          Changed("released.json", [&](json::object& top) { SectionOf(top, key.section)[key.name] = wrong; });
      EXPECT_THAT(ErrorOf(file),
                  AllOf(HasSubstr(PathOf(key) + " is " + json::serialize(wrong)), HasSubstr("expected")))
          << key.name;
    }
  }
}

TEST(HfConfig, EveryIntegerRefusesWhatIsOutOfItsRange) {
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.kind != ConfigKind::kInteger) continue;
    for (int64_t wrong : {key.low - 1, key.high + 1}) {
      const json::value file =
          Changed("released.json", [&](json::object& top) { SectionOf(top, key.section)[key.name] = wrong; });
      EXPECT_THAT(ErrorOf(file), HasSubstr(PathOf(key) + " is " + std::to_string(wrong) + ", expected "));
    }
  }
}

TEST(HfConfig, IntegersMayBeSpeltAsRealsOnlyWhenExact) {
  const auto with_hidden = [](const char* number) {
    std::string text = ReadBytes(TestFile("released.json"));
    text.replace(text.find("\"hidden_size\": 5120"), 19, std::string("\"hidden_size\": ") + number);
    const auto config = ParseHfConfig(text);
    return config.ok() ? std::to_string(config->hidden_size) : config.error().message();
  };
  EXPECT_EQ(with_hidden("5120.0"), "5120");
  EXPECT_EQ(with_hidden("5.12e3"), "5120");
  EXPECT_THAT(with_hidden("5120.5"),
              HasSubstr("text_config.hidden_size is 5.1205E3, expected an integer from 1"));
  EXPECT_THAT(with_hidden("1e300"), HasSubstr("expected an integer"));
  EXPECT_THAT(with_hidden("18446744073709551615"), HasSubstr("expected an integer"));
}

TEST(HfConfig, AllProblemsComeInOneMessage) {
  const json::value file = Changed("released.json", [](json::object& top) {
    json::object& text = top.at("text_config").get_object();
    text["hidden_size"] = -5;
    text["hidden_act"] = "gelu";
    text.erase("head_dim");
    top.at("vision_config").get_object()["patch_size"] = "14";
  });
  EXPECT_THAT(ErrorOf(file), AllOf(HasSubstr("4 problems"),
                                   HasSubstr("text_config.hidden_size is -5, expected an integer from 1 to"),
                                   HasSubstr("text_config.hidden_act is \"gelu\", expected \"silu\""),
                                   HasSubstr("text_config.head_dim is missing"),
                                   HasSubstr("vision_config.patch_size is \"14\", expected an integer")));
}

TEST(HfConfig, CompressRatiosFitTheLayersWithOrWithoutDraftStages) {
  const auto with_ratios = [](const std::function<void(json::array&)>& change) {
    return ErrorOf(Changed("released.json", [&change](json::object& top) {
      change(top.at("text_config").get_object().at("compress_ratios").get_array());
    }));
  };
  EXPECT_EQ(with_ratios([](json::array& ratios) { ratios.resize(40); }), "accepted");
  EXPECT_THAT(with_ratios([](json::array& ratios) { ratios.resize(39); }),
              HasSubstr("has 39 entries, expected 40"));
  EXPECT_THAT(with_ratios([](json::array& ratios) { ratios.resize(100, 0); }), HasSubstr("has 100 entries"));
  EXPECT_THAT(with_ratios([](json::array& ratios) { ratios[41] = 2; }),
              HasSubstr("compress_ratios[41] is 2, expected 0"));
}

TEST(HfConfig, IdsMustLieInTheVocabularyAndTheNetwork) {
  const auto with_text = [](const char* key, const json::value& value) {
    return ErrorOf(Changed("released.json",
                           [&](json::object& top) { top.at("text_config").get_object()[key] = value; }));
  };
  EXPECT_THAT(
      with_text("dspark_noise_token_id", 129280),
      HasSubstr("text_config.dspark_noise_token_id is 129280, expected a token id below vocab_size 129280"));
  EXPECT_THAT(
      with_text("engram_layer_ids", json::array{1, 40}),
      HasSubstr("text_config.engram_layer_ids holds 40, expected layer ids below num_hidden_layers 40"));
  EXPECT_THAT(with_text("candidate_source_layer_id", 40), HasSubstr("candidate_source_layer_id is 40"));
  EXPECT_THAT(with_text("engram_num_embeddings", json::array{1}),
              HasSubstr("expected one table size per engram layer"));
}

TEST(HfConfig, OtherSpellingsOfAKeyAreRead) {
  const auto renamed = [](json::object& object, const char* from, const char* to) {
    const json::value value = object.at(from);  // a copy: inserting may move the members
    object.erase(from);
    object[to] = value;
  };
  json::value file = Changed("released.json", [&](json::object& top) {
    json::object& text = top.at("text_config").get_object();
    text["engram_pad_token_id"] = 7;
    renamed(text, "engram_pad_token_id", "engram_pad_id");
    renamed(text.at("rope_scaling").get_object(), "rope_type", "type");
  });
  const auto config = ParseHfConfig(json::serialize(file));
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->engram_pad_token_id, 7);
  EXPECT_THAT(config->unknown_keys, ElementsAre());

  file.at("text_config").get_object()["engram_pad_token_id"] = 8;
  EXPECT_THAT(ErrorOf(file),
              HasSubstr("engram_pad_token_id is 8, but its other spelling engram_pad_id is 7"));
}

TEST(HfConfig, UnknownKeysAreKeptByPathAndDoNotFail) {
  const json::value file = Changed("released.json", [](json::object& top) {
    top["torch_dtype"] = "bfloat16";
    top["new_thing"] = 1;
    top.at("text_config").get_object()["mystery"] = json::object();
    top.at("text_config").get_object().at("rope_scaling").get_object()["mscale"] = 1.0;
  });
  const auto config = ParseHfConfig(json::serialize(file));
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_THAT(config->unknown_keys, testing::UnorderedElementsAre("new_thing", "text_config.mystery",
                                                                  "text_config.rope_scaling.mscale"));
}

TEST(HfConfig, OtherFamiliesAreRefusedAsSuch) {
  const auto v4 = ReadHfConfig(TestFile("v4.json"));
  ASSERT_FALSE(v4.ok());
  EXPECT_EQ(v4.error().code(), ErrorCode::kMismatch);
  EXPECT_THAT(v4.error().message(), AllOf(HasSubstr("v4.json: this is a DeepSeek-V4 config"),
                                          HasSubstr("DeepSeek-V4.1"), Not(HasSubstr("missing"))));
  EXPECT_THAT(ErrorOf({{"n_hash_layers", 3}, {"dim", 4096}}), HasSubstr("this is a DeepSeek-V4 config"));
  EXPECT_EQ(ErrorOf(Changed("flat.json", [](json::object& top) { top["n_hash_layers"] = 0; })), "accepted");
  EXPECT_THAT(ErrorOf({{"architectures", json::array{"LlamaForCausalLM"}}, {"model_type", "llama"}}),
              HasSubstr("another model family: architectures \"LlamaForCausalLM\", model_type \"llama\""));
  EXPECT_THAT(ErrorOf(json::object()), HasSubstr("not a DeepSeek-V4.1 config"));
  EXPECT_THAT(ErrorOf(json::array()), HasSubstr("the file holds [], expected an object"));
}

TEST(HfConfig, RepeatedKeysAndBrokenJsonAreRefusedWithTheirPlace) {
  const auto twice = ParseHfConfig("{\"text_config\": {\"dim\": 1,\n \"dim\": 2}}");
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(twice.error().message(), HasSubstr("line 2"));
  EXPECT_FALSE(ParseHfConfig("").ok());
}

TEST(HfConfig, AMissingFileIsNamed) {
  const ScratchDir dir;
  const auto config = ReadHfConfig(dir.path());
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(config.error().message(), HasSubstr((dir.path() / "config.json").string()));
}

TEST(HfConfig, TruncationAtEveryByteIsAnError) {
  const std::string text = ReadBytes(TestFile("released.json"));
  for (size_t size = 0; size + 2 < text.size(); ++size) {
    EXPECT_FALSE(ParseHfConfig(std::string_view(text).substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace millrace::formats
