#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/value.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "formats/json.h"
#include "formats/tokenizer_json.h"
#include "model/engram_hash.h"
#include "support/sha256.h"

namespace millrace::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

boost::json::value ReadJson(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  auto value = formats::ParseJson(text);
  EXPECT_TRUE(value.ok()) << path;
  return value.ok() ? *std::move(value) : boost::json::value();
}

TokenClasses Classes(const formats::TokenizerData& data, int64_t vocab_size) {
  auto classes = ComputeTokenClasses(data, vocab_size);
  EXPECT_TRUE(classes.ok()) << (classes.ok() ? "" : classes.error().message());
  return classes.ok() ? *std::move(classes) : TokenClasses();
}

// Classes of these texts, as base tokens.
std::vector<int32_t> ClassesOf(const std::vector<std::string>& texts) {
  formats::TokenizerData data;
  for (const std::string& text : texts) data.tokens.push_back(formats::ByteLevelEncode(text));
  return Classes(data, static_cast<int64_t>(texts.size())).class_of;
}

TEST(TokenClasses, CaseAccentsAndWidthDoNotCount) {
  EXPECT_THAT(ClassesOf({"cafe", "CAFÉ", "ｃａｆｅ", "cafe\u0301", "cafes"}), ElementsAre(0, 0, 0, 0, 1));
  EXPECT_THAT(ClassesOf({"ﬁ", "fi", "①", "1"}), ElementsAre(0, 0, 1, 1));         // compatibility forms
  EXPECT_THAT(ClassesOf({"σ", "Σ", "ς", "ß", "ẞ"}), ElementsAre(0, 0, 1, 2, 2));  // no context, no folding
  EXPECT_THAT(ClassesOf({"कि", "क", "i", "\u0130"}), ElementsAre(0, 0, 1, 1));    // Mc goes as well
}

TEST(TokenClasses, SpacingIsFoldedButALoneSpaceStays) {
  EXPECT_THAT(ClassesOf({" the", "the", "the\n", "a\t\r\nb", "a b"}), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(ClassesOf({" ", "\n\n", "\t ", "\u00A0"}), ElementsAre(0, 0, 0, 0));
  // Nothing is left of these: they keep their own text.
  EXPECT_THAT(ClassesOf({"\u2028", "\u0301", "\u0302", "\u2028"}), ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(ClassesOf({"a\u2028", "\u3000a"}), ElementsAre(0, 0));
}

TEST(TokenClasses, FragmentsOfCharactersAreToldApartByTheirRawString) {
  EXPECT_THAT(ClassesOf({"\xC3", "\xE3", "\xC3\xA9", "\xEF\xBF\xBD"}), ElementsAre(0, 1, 2, 3));
}

TEST(TokenClasses, AddedTokensCountWithTheirLiteralText) {
  formats::TokenizerData data;
  data.tokens = {"<THINK>", "<think>", "｜"};  // the last is not in the byte-level alphabet
  data.added_tokens = {{.id = 0, .content = "<THINK>"}, {.id = 2, .content = "｜"}};
  EXPECT_THAT(Classes(data, 3).class_of, ElementsAre(0, 0, 1));
}

TEST(TokenClasses, IdsWithoutATokenShareOneClass) {
  formats::TokenizerData data;
  data.tokens = {"a", "", "b"};
  const TokenClasses classes = Classes(data, 5);
  EXPECT_THAT(classes.class_of, ElementsAre(0, 1, 2, 1, 1));
  EXPECT_EQ(classes.n_classes, 3);
}

TEST(TokenClasses, ATokenizerLargerThanTheModelIsRefused) {
  formats::TokenizerData data;
  data.tokens = {"a", "b"};
  const auto classes = ComputeTokenClasses(data, 1);
  ASSERT_FALSE(classes.ok());
  EXPECT_THAT(classes.error().message(), HasSubstr("2 ids, but the model's vocab_size is 1"));
}

TEST(TokenClasses, AgreeWithTheMapOfTheMiniCheckpoint) {
  const std::filesystem::path dir = std::filesystem::path(MILLRACE_SOURCE_DIR) / "models/mini";
  const auto data = formats::ReadTokenizerJson(dir);
  ASSERT_TRUE(data.ok()) << data.error().message();
  const auto map = ReadJson(dir / "engram_map.json");
  const auto& token_map = map.at("token_map").as_array();
  const TokenClasses classes = Classes(*data, static_cast<int64_t>(token_map.size()));
  EXPECT_EQ(classes.n_classes, map.at("compressed_vocab_size").as_int64());
  ASSERT_EQ(classes.class_of.size(), token_map.size());
  for (size_t id = 0; id < token_map.size(); ++id) {
    EXPECT_EQ(classes.class_of[id], token_map[id].as_int64()) << "id " << id;
  }
}

TEST(TokenClasses, TheReleasedVocabularyGivesTheReleasedMap) {
  const auto golden =
      std::filesystem::path(MILLRACE_SHARED_DIR) / "golden/tokenizer/engram-compressed-map.json";
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << golden << " does not exist; set MILLRACE_SHARED_DIR";
  const std::filesystem::path file = std::filesystem::path(MILLRACE_TOKENIZER_DIR) / "tokenizer.json";
  if (!std::filesystem::exists(file)) {
    GTEST_SKIP() << file << " does not exist; run scripts/fetch-tokenizer " << MILLRACE_TOKENIZER_DIR;
  }
  const auto map = ReadJson(golden);
  const auto data = formats::ReadTokenizerJson(file);
  ASSERT_TRUE(data.ok()) << data.error().message();
  const TokenClasses classes = Classes(*data, map.at("tokens").as_int64());
  EXPECT_EQ(classes.n_classes, map.at("classes").as_int64());
  EXPECT_EQ(testing::Sha256HexOfU32(classes.class_of), std::string(map.at("sha256_u32le").as_string()));
  for (const auto& sample : map.at("samples").as_array()) {
    const auto id = static_cast<size_t>(sample.at(0).as_int64());
    EXPECT_EQ(classes.class_of[id], sample.at(1).as_int64()) << "id " << id;
  }
}

}  // namespace
}  // namespace millrace::model
