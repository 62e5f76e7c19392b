#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "text/golden_testing.h"
#include "text/utf8.h"
#include "text/utf8_testing.h"

namespace millrace::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A vocabulary of the 256 bytes, ids 1 to 256, behind one control token, and what a test adds.
formats::TokenizerData ByteVocabulary() {
  formats::TokenizerData data;
  data.tokens.push_back("<end>");
  data.added_tokens.push_back({.id = 0, .content = "<end>", .special = true});
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(formats::ByteLevelEncode(std::string(1, static_cast<char>(byte))));
  }
  return data;
}

TokenId ByteId(char c) {
  return 1 + static_cast<uint8_t>(c);
}

Tokenizer Built(const formats::TokenizerData& data) {
  auto tokenizer = Tokenizer::Build(data);
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().message());
  return *std::move(tokenizer);
}

// Valid UTF-8 from any plane, with ASCII, white space and combining marks favoured.
std::string RandomText(std::mt19937& random, size_t characters) {
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    uint32_t c = random() % 128;
    if (random() % 3 == 0) c = random() % 0x110000;
    if (random() % 8 == 0) c = 0x300 + random() % 16;
    if (c >= 0xD800 && c < 0xE000) c = '\n';
    text += Utf8(c);
  }
  return text;
}

TEST(Tokenizer, DecodingTheIdsOfATextGivesTheTextBack) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = RandomText(random, random() % 60);
    ASSERT_TRUE(IsUtf8(text));
    ASSERT_EQ(MiniTokenizer().Decode(MiniTokenizer().EncodeText(text)), text)
        << ::testing::PrintToString(text);
    ASSERT_EQ(MiniTokenizer().Decode(MiniTokenizer().EncodePrompt(text), ControlTokens::kKeep), text);
  }
}

TEST(Tokenizer, AnyBytesEncodeLikeTheirRepair) {
  std::mt19937 random(8);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = RandomText(random, random() % 30);
    for (auto n = 1 + random() % 4; n > 0 && !bytes.empty(); --n) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    ASSERT_EQ(MiniTokenizer().EncodeText(bytes), MiniTokenizer().EncodeText(RepairUtf8(bytes)));
    ASSERT_EQ(MiniTokenizer().EncodePrompt(bytes), MiniTokenizer().EncodePrompt(RepairUtf8(bytes)));
  }
}

TEST(Tokenizer, EncodesTheSpelledPromptsOfTheMiniCheckpoint) {
  const auto examples = ReadJson(MiniDir() / "examples.json").as_array();
  ASSERT_EQ(examples.size(), 14u);
  for (const auto& example : examples) {
    EXPECT_EQ(MiniTokenizer().EncodePrompt(String(example.at("prompt"))), Ids(example.at("prompt_ids")));
    const auto output = Ids(example.at("output_ids"));
    EXPECT_EQ(MiniTokenizer().Decode(output, ControlTokens::kKeep),
              String(example.at("output")) + (output.back() == 1 ? "<｜end▁of▁sentence｜>" : ""));
  }
}

TEST(Tokenizer, ControlTokensAreTextUnlessTheTextIsTrusted) {
  const Tokenizer& mini = MiniTokenizer();
  const TokenId think = mini.FindToken("<think>").value();
  EXPECT_THAT(mini.EncodePrompt("<think>"), ElementsAre(think));
  const auto ids = mini.EncodeText("<think>");
  EXPECT_GT(ids.size(), 1u);
  for (const TokenId id : ids) EXPECT_FALSE(mini.IsControl(id));
  EXPECT_EQ(mini.Decode(ids), "<think>");
}

TEST(Tokenizer, TheLeftmostAndThenLongestControlTokenIsCutOut) {
  formats::TokenizerData data = ByteVocabulary();
  for (const char* content : {"<a", "<ab>", "b>c"}) {
    const auto id = static_cast<TokenId>(data.tokens.size());
    data.tokens.push_back(content);
    data.added_tokens.push_back({.id = id, .content = content});
  }
  const Tokenizer tokenizer = Built(data);
  EXPECT_THAT(tokenizer.EncodePrompt("<ab>c"), ElementsAre(258, ByteId('c')));
  EXPECT_THAT(tokenizer.EncodePrompt("<abx"), ElementsAre(257, ByteId('b'), ByteId('x')));
  EXPECT_THAT(tokenizer.EncodePrompt("<<ab>"), ElementsAre(ByteId('<'), 258));
  EXPECT_THAT(tokenizer.EncodePrompt("b>c<a"), ElementsAre(259, 257));
  EXPECT_EQ(tokenizer.FindToken("<ab"), std::nullopt);
  EXPECT_EQ(tokenizer.FindToken(""), std::nullopt);
}

TEST(Tokenizer, AnUnreachableTokenIsNotUsedForAWholePiece) {
  // "abc" can only come from "a" + "bc", but "ab" has the lower rank and "ab" + "c" is no merge.
  formats::TokenizerData data = ByteVocabulary();
  for (const char* token : {"ab", "bc", "abc"}) data.tokens.push_back(token);
  data.merges = {{"a", "b"}, {"b", "c"}, {"a", "bc"}};
  EXPECT_THAT(Built(data).EncodeText("abc"), ElementsAre(257, ByteId('c')));
}

TEST(Tokenizer, EqualRanksMergeFromTheLeft) {
  formats::TokenizerData data = ByteVocabulary();
  data.tokens.push_back("aa");
  data.merges = {{"a", "a"}};
  const Tokenizer tokenizer = Built(data);
  EXPECT_THAT(tokenizer.EncodeText("aaa"), ElementsAre(257, ByteId('a')));
  std::vector<TokenId> expected(50, 257);
  expected.push_back(ByteId('a'));
  EXPECT_EQ(tokenizer.EncodeText(std::string(101, 'a')), expected);  // the same on the path of long pieces
}

TEST(Tokenizer, MergesMayStandInFrontOfThoseThatMakeTheirHalves) {
  formats::TokenizerData data = ByteVocabulary();
  for (const char* token : {"ab", "abc"}) data.tokens.push_back(token);
  data.merges = {{"ab", "c"}, {"a", "b"}};
  EXPECT_THAT(Built(data).EncodeText("abcab"), ElementsAre(258, 257));
}

TEST(Tokenizer, IdsThatAreNoTokensHaveNoBytes) {
  formats::TokenizerData data = ByteVocabulary();
  data.tokens.emplace_back();  // left out by the file
  data.tokens.push_back("<x>");
  data.added_tokens.push_back({.id = 258, .content = "<x>"});
  const Tokenizer tokenizer = Built(data);
  EXPECT_EQ(tokenizer.vocab_size(), 259);
  for (const TokenId id : {257, 259, -1, 1 << 30}) {
    EXPECT_EQ(tokenizer.TokenBytes(id), "") << id;
    EXPECT_FALSE(tokenizer.IsControl(id)) << id;
  }
  EXPECT_EQ(tokenizer.TokenBytes(258), "<x>");
  EXPECT_TRUE(tokenizer.IsControl(258));
}

TEST(Tokenizer, BrokenDataIsRefused) {
  const auto message = [](const formats::TokenizerData& data) {
    const auto tokenizer = Tokenizer::Build(data);
    return tokenizer.ok() ? std::string("accepted") : tokenizer.error().message();
  };
  formats::TokenizerData data = ByteVocabulary();
  data.tokens.back() = "zz";
  EXPECT_THAT(message(data), HasSubstr("no token for byte 0xff"));
  data = ByteVocabulary();
  data.merges = {{"a", "b"}};
  EXPECT_THAT(message(data), HasSubstr("merge 0 joins \"a\" and \"b\""));
  data = ByteVocabulary();
  data.tokens.push_back("a");
  EXPECT_THAT(message(data), HasSubstr("token \"a\" stands twice"));
  data = ByteVocabulary();
  data.added_tokens.push_back({.id = 9, .content = "<x>"});
  EXPECT_THAT(message(data), HasSubstr("\"<x>\" does not stand in the vocabulary at its id 9"));
  data = ByteVocabulary();
  data.added_tokens.push_back({.id = 0, .content = "<end>"});
  EXPECT_THAT(message(data), HasSubstr("\"<end>\" stands twice"));
}

}  // namespace
}  // namespace millrace::text
