#include <gtest/gtest.h>

#include <ctime>
#include <iterator>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>

#include "support/sha256.h"
#include "text/byte_pair_merger.h"
#include "text/golden_testing.h"
#include "text/match_encoder.h"
#include "text/piece_splitter.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/utf8_testing.h"

namespace millrace::text {
namespace {

class TokenizerGolden : public GoldenTest {};

// The tokens of a file by merging neighbours in its pieces one by one.
class MergingTokenizer {
 public:
  explicit MergingTokenizer(const formats::TokenizerData& data) {
    std::unordered_map<std::string, TokenId> ids;
    for (size_t id = 0; id < data.tokens.size(); ++id) ids[data.tokens[id]] = static_cast<TokenId>(id);
    for (int byte = 0; byte < 256; ++byte) {
      bytes_.push_back(ids.at(formats::ByteLevelEncode(std::string(1, static_cast<char>(byte)))));
    }
    for (const auto& [left, right] : data.merges) {
      merges_.push_back({.left = ids.at(left), .right = ids.at(right), .result = ids.at(left + right)});
    }
    merger_.emplace(bytes_, merges_);
  }

  std::vector<TokenId> EncodeText(std::string_view text) const {
    std::vector<TokenId> ids;
    BytePairMerger::Scratch scratch;
    PieceSplitter splitter(classes_, text);
    for (auto piece = splitter.Next(); !piece.empty(); piece = splitter.Next()) {
      merger_->Encode(piece, scratch, ids);
    }
    return ids;
  }

  bool NeedsNoMerging() const { return MatchEncoder::Build(bytes_, merges_).has_value(); }

 private:
  std::vector<TokenId> bytes_;
  std::vector<Merge> merges_;
  std::optional<BytePairMerger> merger_;
  CharClasses classes_;
};

// Tokens in any order, so that all kinds of cuts compete, and characters of one script or of several.
std::string TextOfTokensOrScripts(std::mt19937& random, const Tokenizer& tokenizer) {
  constexpr std::pair<uint32_t, uint32_t> kScripts[] = {
      {0x20, 0x7E},     {0xC0, 0x17F},    {0x300, 0x36F},   {0x400, 0x45F},   {0x900, 0x97F},
      {0x3040, 0x30FF}, {0x4E00, 0x9FFF}, {0x4E00, 0x5000}, {0xAC00, 0xD7A3}, {0x1F300, 0x1F5FF}};
  std::string text;
  const auto script = random() % std::size(kScripts);
  const bool is_mixed = random() % 4 == 0;
  for (auto n = random() % 80; n > 0; --n) {
    if (script == 0) {
      text += tokenizer.TokenBytes(static_cast<TokenId>(random() % 129280));
    } else {
      const auto& [first, last] = kScripts[is_mixed ? random() % std::size(kScripts) : script];
      text += Utf8(first + static_cast<uint32_t>(random() % (last - first + 1)));
    }
  }
  return RepairUtf8(text);
}

TEST_F(TokenizerGolden, HasTheReleasedSizeAndControlTokens) {
  EXPECT_EQ(Released().vocab_size(), 129280);
  const auto table = ReadJson(GoldenDir() / "tokenizer/added-tokens-v41.json");
  ASSERT_EQ(table.at("tokens").as_array().size(), 1283u);
  for (const auto& entry : table.at("tokens").as_array()) {
    const auto id = static_cast<TokenId>(entry.at(0).as_int64());
    EXPECT_EQ(Released().FindToken(String(entry.at(1))), id);
    EXPECT_TRUE(Released().IsControl(id));
    EXPECT_EQ(Released().EncodePrompt(String(entry.at(1))), std::vector<TokenId>{id});
  }
  EXPECT_FALSE(Released().IsControl(3));
  EXPECT_FALSE(Released().IsControl(127999));
}

TEST_F(TokenizerGolden, TheReleasedFileSurvivesWritingAndReading) {
  const auto data = formats::ReadTokenizerJson(MILLRACE_TOKENIZER_DIR);
  ASSERT_TRUE(data.ok()) << data.error().message();
  EXPECT_EQ(data->merges.size(), 127741u);
  const auto again = formats::ParseTokenizerJson(formats::WriteTokenizerJson(*data));
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(*again, *data);
}

TEST_F(TokenizerGolden, EncodesEveryString) {
  const auto cases = Cases("tokenizer/encode.json");
  ASSERT_EQ(cases.size(), 259u);
  for (const auto& c : cases) {
    const std::string text = String(c.at("text"));
    const auto* prompt_ids = c.as_object().if_contains("prompt_ids");
    EXPECT_EQ(Released().EncodeText(text), Ids(c.at("text_ids"))) << c.at("id");
    EXPECT_EQ(Released().EncodePrompt(text), Ids(prompt_ids ? *prompt_ids : c.at("text_ids"))) << c.at("id");
    EXPECT_EQ(Released().Decode(Ids(c.at("text_ids"))), text) << c.at("id");
    if (prompt_ids) {
      EXPECT_EQ(Released().Decode(Ids(*prompt_ids), ControlTokens::kKeep), text) << c.at("id");
    }
  }
}

TEST_F(TokenizerGolden, EncodesAsMergingDoes) {
  std::mt19937 random(44);
  for (const std::filesystem::path& dir : {MiniDir(), std::filesystem::path(MILLRACE_TOKENIZER_DIR)}) {
    const auto data = formats::ReadTokenizerJson(dir);
    ASSERT_TRUE(data.ok()) << data.error().message();
    const MergingTokenizer merging(*data);
    EXPECT_TRUE(merging.NeedsNoMerging());
    const Tokenizer& tokenizer = dir == MiniDir() ? MiniTokenizer() : Released();
    for (int round = 0; round < 2000; ++round) {
      const std::string text = TextOfTokensOrScripts(random, tokenizer);
      ASSERT_EQ(tokenizer.EncodeText(text), merging.EncodeText(text)) << text;
    }
  }
}

TEST_F(TokenizerGolden, EncodesLongInputs) {
  const auto cases = Cases("tokenizer/long.json");
  ASSERT_EQ(cases.size(), 13u);
  for (const auto& c : cases) {
    std::string text;
    for (int64_t i = 0; i < c.at("times").as_int64(); ++i) text += String(c.at("unit"));
    ASSERT_EQ(static_cast<int64_t>(text.size()), c.at("utf8_bytes").as_int64());
    const std::vector<TokenId> ids = Released().EncodeText(text);
    EXPECT_EQ(static_cast<int64_t>(ids.size()), c.at("count").as_int64()) << c.at("id");
    EXPECT_EQ(testing::Sha256HexOfU32(ids), String(c.at("sha256_u32le"))) << c.at("id");
    EXPECT_EQ(Released().Decode(ids), text) << c.at("id");
  }
}

TEST_F(TokenizerGolden, LongPiecesTakeNoQuadraticTime) {
  // A quadratic scan of one of these pieces would take minutes.
  for (const char* unit : {"a", " ", "\n", "-", "漢", "é", "😀", "\x01", "1", "Ω", "\xCC\x81", "a "}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const std::clock_t start = std::clock();  // processor time: the machine may be busy
    const auto ids = Released().EncodeText(text);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_EQ(Released().Decode(ids), text);
    EXPECT_LT(seconds, 10.0) << ::testing::PrintToString(unit);  // under a sanitizer; else 0.2
  }
}

TEST_F(TokenizerGolden, RepairsInvalidUtf8) {
  const auto cases = Cases("tokenizer/invalid-utf8.json");
  ASSERT_EQ(cases.size(), 15u);
  for (const auto& c : cases) {
    const std::string bytes = FromHex(String(c.at("hex")));
    EXPECT_EQ(RepairUtf8(bytes), String(c.at("text"))) << c.at("hex");
    EXPECT_EQ(Released().EncodeText(bytes), Ids(c.at("text_ids"))) << c.at("hex");
    EXPECT_EQ(Released().EncodePrompt(bytes), Ids(c.at("text_ids"))) << c.at("hex");
  }
}

void CheckPieces(const Tokenizer& tokenizer, const boost::json::object& c) {
  const auto ids = Ids(c.at("ids"));
  const auto& pieces = c.at("pieces_hex").as_array();
  ASSERT_EQ(ids.size(), pieces.size());
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(tokenizer.TokenBytes(ids[i]), FromHex(String(pieces[i])));
  EXPECT_EQ(tokenizer.Decode(ids), String(c.at("text")));
}

void CheckCut(const Tokenizer& tokenizer, const boost::json::object& c) {
  StreamDecoder decoder(tokenizer);
  std::string bytes, text;
  for (const TokenId id : Ids(c.at("ids"))) {
    bytes += tokenizer.TokenBytes(id);
    text += decoder.Push(id);
  }
  EXPECT_EQ(bytes, FromHex(String(c.at("bytes_hex"))));
  EXPECT_EQ(text, String(c.at("complete_prefix")));
  EXPECT_EQ(text + decoder.Flush(), String(c.at("at_end_of_stream")));
}

TEST_F(TokenizerGolden, DecodesPiecesCutsAndControlTokens) {
  const auto cases = Cases("tokenizer/decode.json");
  size_t checked = 0;
  for (const auto& value : cases) {
    const auto& c = value.as_object();
    SCOPED_TRACE(c.at("id"));
    if (c.contains("pieces_hex")) {
      CheckPieces(Released(), c);
    } else if (c.contains("bytes_hex")) {
      CheckCut(Released(), c);
    } else {
      EXPECT_EQ(Released().Decode(Ids(c.at("ids")), ControlTokens::kKeep), String(c.at("text_with_control")));
      EXPECT_EQ(Released().Decode(Ids(c.at("ids")), ControlTokens::kDrop),
                String(c.at("text_without_control")));
    }
    ++checked;
  }
  EXPECT_EQ(checked, 44u);
}

}  // namespace
}  // namespace millrace::text
