#include "formats/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <functional>
#include <string>

#include "formats/json.h"

namespace millrace::formats {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace json = boost::json;

std::filesystem::path MiniDir() {
  return std::filesystem::path(MILLRACE_SOURCE_DIR) / "models/mini";
}

TokenizerData Mini() {
  auto data = ReadTokenizerJson(MiniDir());
  EXPECT_TRUE(data.ok()) << (data.ok() ? "" : data.error().message());
  return *std::move(data);
}

// A complete small file: the 256 bytes, "ab", and two control tokens, the first of them in the vocabulary
// too.
json::object SmallFile() {
  TokenizerData data;
  data.tokens.push_back("<end>");
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(ByteLevelEncode(std::string(1, static_cast<char>(byte))));
  }
  data.tokens.push_back("ab");
  data.tokens.push_back("<think>");
  data.merges = {{"a", "b"}};
  data.added_tokens = {{.id = 0, .content = "<end>", .special = true}, {.id = 258, .content = "<think>"}};
  return json::parse(WriteTokenizerJson(data)).get_object();
}

std::string Outcome(std::string_view text) {
  const auto data = ParseTokenizerJson(text);
  return data.ok() ? "accepted" : data.error().message();
}

// What the parser says after `change` was made to the small file.
std::string After(const std::function<void(json::object&)>& change) {
  json::object file = SmallFile();
  change(file);
  return Outcome(json::serialize(file));
}

json::object& Model(json::object& file) {
  return file["model"].get_object();
}
json::object& Vocab(json::object& file) {
  return Model(file)["vocab"].get_object();
}
json::array& Merges(json::object& file) {
  return Model(file)["merges"].get_array();
}
json::array& Added(json::object& file) {
  return file["added_tokens"].get_array();
}

TEST(ByteLevel, EveryByteHasOneCharacter) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    const auto decoded = ByteLevelDecode(ByteLevelEncode(bytes));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, bytes);
  }
  EXPECT_EQ(ByteLevelEncode(" the\n"), "ĠtheĊ");
  EXPECT_EQ(ByteLevelEncode("\xC3\xA9"), "Ã©");
}

TEST(ByteLevel, CharactersOutsideTheAlphabetAreRefused) {
  for (const char* raw : {" ", "\n", "漢", "\u0144", "a\u0144", "\xC3", "\x80", "\xC4\x20"}) {
    EXPECT_FALSE(ByteLevelDecode(raw).ok()) << raw;
  }
}

TEST(TokenizerJson, ReadsTheMiniCheckpoint) {
  const TokenizerData data = Mini();
  EXPECT_EQ(data.tokens.size(), 1280u);
  EXPECT_EQ(data.merges.size(), 984u);
  ASSERT_EQ(data.added_tokens.size(), 40u);
  EXPECT_EQ(data.tokens[259], "he");
  EXPECT_EQ(data.tokens[1250], "<think>");
  EXPECT_EQ(data.merges[1], std::pair(std::string("Ġ"), std::string("t")));
  EXPECT_EQ(data.added_tokens[0],
            (AddedToken{.id = 0, .content = "<｜begin▁of▁sentence｜>", .special = true}));
}

TEST(TokenizerJson, WhatIsWrittenReadsBackTheSame) {
  const TokenizerData data = Mini();
  const auto again = ParseTokenizerJson(WriteTokenizerJson(data));
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(*again, data);
}

TEST(TokenizerJson, TheWriterKeepsTheReleasedLayout) {
  const auto mini = ParseJson(WriteTokenizerJson(Mini()));
  ASSERT_TRUE(mini.ok());
  std::vector<std::string> keys;
  for (const auto& field : mini->get_object()) keys.emplace_back(field.key());
  EXPECT_THAT(keys, ::testing::ElementsAre("version", "truncation", "padding", "added_tokens", "normalizer",
                                           "pre_tokenizer", "post_processor", "decoder", "model"));
  EXPECT_EQ(mini->at("model").at("vocab").as_object().size(), 1243u);  // control tokens 0, 1, 2 stand in both
}

TEST(TokenizerJson, MergesMayBePairs) {
  EXPECT_EQ(After([](json::object& file) { Merges(file)[0] = json::array({"a", "b"}); }), "accepted");
}

TEST(TokenizerJson, SpellingsThatChangeNoIdAreAccepted) {
  EXPECT_EQ(After([](json::object& file) {
              file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
              file["post_processor"] = nullptr;
              Model(file)["ignore_merges"] = false;
              Model(file)["unk_token"] = nullptr;
              Model(file).erase("dropout");
              file["decoder"].get_object()["trim_offsets"] = false;
              // Some writers put the line breaks themselves into the pattern.
              json::value& pattern =
                  file["pre_tokenizer"].at("pretokenizers").at(2).at("pattern").at("Regex");
              std::string text(pattern.get_string());
              for (size_t at; (at = text.find("\\r\\n")) != std::string::npos;) text.replace(at, 4, "\r\n");
              pattern = text;
            }),
            "accepted");
}

TEST(TokenizerJson, OtherRulesAreRefusedByField) {
  const struct {
    std::function<void(json::object&)> change;
    std::string named;
  } cases[] = {
      {[](json::object& f) { Model(f)["type"] = "Unigram"; }, "model.type is \"Unigram\""},
      {[](json::object& f) { Model(f)["byte_fallback"] = true; }, "model.byte_fallback is true"},
      {[](json::object& f) { Model(f)["unk_token"] = "<unk>"; }, "model.unk_token is \"<unk>\""},
      {[](json::object& f) { Model(f)["dropout"] = 0.1; }, "model.dropout is 1E-1"},
      {[](json::object& f) { Model(f)["ignore_merges"] = true; }, "\"model.ignore_merges\" with value true"},
      {[](json::object& f) {
         f["normalizer"] = {{"type", "NFKC"}};
       },
       "normalizer is"},
      {[](json::object& f) {
         f["truncation"] = {{"max_length", 5}};
       },
       "truncation is"},
      {[](json::object& f) { f["pre_tokenizer"] = nullptr; }, "pre_tokenizer is null"},
      {[](json::object& f) { f.erase("decoder"); }, "decoder is missing"},
      {[](json::object& f) { f.erase("model"); }, "model is missing"},
      {[](json::object& f) {
         f["post_processor"] = {{"type", "TemplateProcessing"}};
       },
       "post_processor.type"},
      {[](json::object& f) { f["pre_tokenizer"].at("pretokenizers").get_array().pop_back(); },
       "pre_tokenizer.pretokenizers is"},
      {[](json::object& f) {
         f["pre_tokenizer"].at("pretokenizers").at(0).at("pattern").get_object()["Regex"] = "\\p{N}";
       },
       "pre_tokenizer.pretokenizers[0].pattern.Regex is \"\\\\p{N}\""},
      {[](json::object& f) {
         f["pre_tokenizer"].at("pretokenizers").at(3).get_object()["add_prefix_space"] = true;
       },
       "pre_tokenizer.pretokenizers[3].add_prefix_space is true"},
  };
  for (const auto& c : cases) EXPECT_THAT(After(c.change), HasSubstr(c.named));
}

TEST(TokenizerJson, ABrokenVocabularyIsRefusedByToken) {
  EXPECT_THAT(After([](json::object& f) { Vocab(f)["zz"] = 5; }), HasSubstr("id 5 belongs to both"));
  EXPECT_THAT(After([](json::object& f) { Vocab(f)["zz"] = -1; }), HasSubstr("the id of \"zz\" is \"-1\""));
  EXPECT_THAT(After([](json::object& f) { Vocab(f)["zz"] = 1 << 20; }), HasSubstr("from 0 to 1048575"));
  EXPECT_THAT(After([](json::object& f) { Vocab(f)["zz"] = 1.5; }), HasSubstr("expected an integer"));
  EXPECT_THAT(After([](json::object& f) { Vocab(f)[""] = 900; }), HasSubstr("empty token"));
  EXPECT_THAT(After([](json::object& f) { Vocab(f)[std::string(5000, 'z')] = 900; }),
              HasSubstr("5000 bytes"));
  EXPECT_THAT(After([](json::object& f) { Vocab(f)["z z"] = 900; }),
              HasSubstr("outside the byte-level alphabet"));
  EXPECT_THAT(After([](json::object& f) { Vocab(f).erase("Ā"); }), HasSubstr("byte 0x00"));
  EXPECT_THAT(After([](json::object& f) { Model(f)["vocab"] = json::array(); }), HasSubstr("model.vocab"));
  std::string twice = json::serialize(SmallFile());
  twice.replace(twice.find("\"vocab\":{"), 9, "\"vocab\":{\"ab\":900,");
  EXPECT_THAT(Outcome(twice), HasSubstr("\"ab\" appears twice"));
}

TEST(TokenizerJson, BrokenMergesAreRefusedByRank) {
  const auto with_merge = [](json::value merge) {
    return After([&](json::object& f) { Merges(f).push_back(merge); });
  };
  EXPECT_THAT(with_merge("a b"), AllOf(HasSubstr("model.merges[1]"), HasSubstr("stands twice")));
  EXPECT_THAT(with_merge("a c"),
              AllOf(HasSubstr("model.merges[1]"), HasSubstr("\"ac\" is not a base token")));
  EXPECT_THAT(with_merge("q zz"), HasSubstr("\"zz\" is not a base token"));
  EXPECT_THAT(with_merge("<end> a"), HasSubstr("\"<end>\" is not a base token"));
  for (const json::value& odd : {json::value("ab"), json::value("a b c"), json::value(3), json::value({"a"}),
                                 json::value({"a", "b", "c"}), json::value({1, 2})}) {
    EXPECT_THAT(with_merge(odd), HasSubstr("expected \"left right\"")) << odd;
  }
  EXPECT_THAT(After([](json::object& f) { Model(f).erase("merges"); }), HasSubstr("model.merges is missing"));
}

TEST(TokenizerJson, BrokenAddedTokensAreRefusedByName) {
  const auto with_token = [](json::object token) {
    return After([&](json::object& f) { Added(f).push_back(token); });
  };
  EXPECT_EQ(with_token({{"id", 300}, {"content", "<x>"}}), "accepted");  // ids may have gaps
  EXPECT_THAT(with_token({{"id", 258}, {"content", "<x>"}}), HasSubstr("id 258 belongs to both"));
  EXPECT_THAT(with_token({{"id", 300}, {"content", "<think>"}}), HasSubstr("\"<think>\" stands twice"));
  EXPECT_THAT(with_token({{"id", 300}, {"content", "ab"}}),
              HasSubstr("has id 300 here and 257 in model.vocab"));
  EXPECT_THAT(with_token({{"id", 257}, {"content", "<x>"}}), HasSubstr("belongs to \"ab\" in model.vocab"));
  EXPECT_THAT(with_token({{"id", 300}, {"content", ""}}), HasSubstr("empty token"));
  EXPECT_THAT(with_token({{"id", 300}}), HasSubstr("expected an object with id and content"));
  EXPECT_THAT(with_token({{"id", 300}, {"content", "<x>"}, {"lstrip", true}}),
              HasSubstr("lstrip is \"true\""));
  EXPECT_THAT(with_token({{"id", 300}, {"content", "<x>"}, {"special", 1}}), HasSubstr("special is \"1\""));
  // A control token that is also the token of a byte would make that byte unspeakable.
  EXPECT_THAT(with_token({{"id", 1}, {"content", "Ā"}}), HasSubstr("byte 0x00"));
}

TEST(TokenizerJson, WhatIsNoFileOfThisKindIsRefused) {
  EXPECT_THAT(Outcome(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(Outcome("[]"), HasSubstr("not an object"));
  EXPECT_THAT(Outcome(std::string(100, '[')), HasSubstr("nested deeper"));
  const auto missing = ReadTokenizerJson("/nonexistent");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("scripts/fetch-tokenizer"));
}

TEST(TokenizerJson, ATruncatedFileIsRefusedAtEveryLength) {
  const std::string text = json::serialize(SmallFile());
  for (size_t n = 0; n < text.size(); n += 7) EXPECT_NE(Outcome(text.substr(0, n)), "accepted") << n;
}

}  // namespace
}  // namespace millrace::formats
