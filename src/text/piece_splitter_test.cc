#include "text/piece_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unicode/uchar.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "text/utf8_testing.h"

namespace millrace::text {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Split(std::string_view text) {
  static const CharClasses classes;
  std::vector<std::string> pieces;
  PieceSplitter splitter(classes, text);
  for (std::string_view piece = splitter.Next(); !piece.empty(); piece = splitter.Next()) {
    pieces.emplace_back(piece);
  }
  return pieces;
}

TEST(PieceSplitter, NumbersGoInThreesFromTheLeft) {
  EXPECT_THAT(Split("1234567"), ElementsAre("123", "456", "7"));
  EXPECT_THAT(Split("Ⅷ½１２"), ElementsAre("Ⅷ½１", "２"));
}

TEST(PieceSplitter, AWordTakesOneCharacterInFront) {
  EXPECT_THAT(Split("a  b"), ElementsAre("a", " ", " b"));
  EXPECT_THAT(Split("\tx"), ElementsAre("\tx"));
  EXPECT_THAT(Split("(word"), ElementsAre("(word"));
  EXPECT_THAT(Split("(wörd"), ElementsAre("(w", "örd"));
  EXPECT_THAT(Split("\nx"), ElementsAre("\n", "x"));
}

TEST(PieceSplitter, ASpaceInFrontOfANumberOrCjkStandsAlone) {
  EXPECT_THAT(Split("a   1"), ElementsAre("a", "   ", "1"));
  EXPECT_THAT(Split("a  漢字 b"), ElementsAre("a", "  ", "漢字", " b"));
}

TEST(PieceSplitter, ACjkRunIsCutAtItsPunctuation) {
  EXPECT_THAT(Split("漢字・カナ"), ElementsAre("漢字", "・", "カナ"));
  EXPECT_THAT(Split("a・b"), ElementsAre("a", "・", "b"));
  EXPECT_THAT(Split("é\u3099"), ElementsAre("é", "\u3099"));
}

TEST(PieceSplitter, WhiteSpaceEndsAfterItsLastBreak) {
  EXPECT_THAT(Split("a \n \n  b"), ElementsAre("a", " \n \n", " ", " b"));
  EXPECT_THAT(Split("!\r\n\n x"), ElementsAre("!\r\n\n", " x"));
  EXPECT_THAT(Split("a \t "), ElementsAre("a", " \t "));
}

TEST(PieceSplitter, CharactersOfNoRuleArePiecesOfTheirOwn) {
  EXPECT_THAT(Split(std::string("\0\0 .", 4)), ElementsAre(std::string("\0\0", 2), " ."));
  EXPECT_THAT(Split(std::string("\0\0a", 3)), ElementsAre(std::string("\0", 1), std::string("\0a", 2)));
  EXPECT_THAT(Split("\xEF\xBF\xBF"), ElementsAre("\xEF\xBF\xBF"));
}

// The rules as the released tokenizer.json states them, applied pass by pass: the oracle.
class ReleasedPatterns {
 public:
  std::vector<std::string> Split(const std::string& text) const {
    std::vector<std::string> pieces = {text};
    for (const auto& pattern : patterns_) {
      std::vector<std::string> next;
      for (const std::string& piece : pieces) Isolate(pattern.get(), piece, next);
      pieces = std::move(next);
    }
    return pieces;
  }

 private:
  using Pattern = std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)>;

  static Pattern Compile(const char* pattern) {
    int error = 0;
    size_t offset = 0;
    Pattern compiled(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr),
                     &pcre2_code_free);
    EXPECT_NE(compiled, nullptr) << "at " << offset;
    return compiled;
  }

  static void Isolate(const pcre2_code* pattern, const std::string& text, std::vector<std::string>& out) {
    std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
        pcre2_match_data_create_from_pattern(pattern, nullptr), &pcre2_match_data_free);
    size_t from = 0;
    while (pcre2_match(pattern, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, 0, match.get(),
                       nullptr) > 0) {
      const size_t* ends = pcre2_get_ovector_pointer(match.get());
      if (ends[0] > from) out.push_back(text.substr(from, ends[0] - from));
      out.push_back(text.substr(ends[0], ends[1] - ends[0]));
      from = ends[1];
    }
    if (from < text.size()) out.push_back(text.substr(from));
  }

  std::vector<Pattern> patterns_ = [] {
    std::vector<Pattern> patterns;
    patterns.push_back(Compile(R"(\p{N}{1,3})"));
    patterns.push_back(Compile(R"([一-龥぀-ゟ゠-ヿ]+)"));
    patterns.push_back(Compile(
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"));
    return patterns;
  }();
};

// ICU and PCRE2 may know different Unicode versions; they agree on what Unicode 14 had assigned, and on what
// it never assigns.
bool InBothVersions(uint32_t c) {
  if (c >= 0xD800 && c <= 0xDFFF) return false;
  if (c == 0x180E) return false;  // white space to PCRE2, though no longer to Unicode
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return (age[0] > 0 && age[0] <= 14) || (c & 0xFFFE) == 0xFFFE;
}

// A character of each kind that the rules tell apart, and any at all.
std::string RandomCharacter(std::mt19937& random) {
  static constexpr std::string_view kCommon[] = {
      "a",  "Z",  "é",      "я",      "ß",      "\u0301", "\u0903", "1",      "9",      "½",  "Ⅷ",
      "!",  "-",  "'",      "_",      "~",      "«",      "€",      "😀",      " ",      " ",  " ",
      "\t", "\n", "\r",     "\u00A0", "\u3000", "\u2028", "\u0085", "漢",     "字",     "あ", "ー",
      "・", "々", "\u200B", "\uFEFF", "\x01",   "\x7F",   "\uE000", "\uFFFF", "\u3099", "゛"};
  if (random() % 4 != 0) return std::string(kCommon[random() % std::size(kCommon)]);
  for (;;) {
    const uint32_t c = random() % 8 == 0 ? random() % 0x110000 : random() % 0x3200;
    if (InBothVersions(c)) return Utf8(c);
  }
}

TEST(PieceSplitter, CutsLikeTheReleasedPatternsOnRandomText) {
  const ReleasedPatterns patterns;
  std::mt19937 random(20261);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (auto n = random() % 24; n > 0; --n) text += RandomCharacter(random);
    ASSERT_EQ(Split(text), text.empty() ? std::vector<std::string>() : patterns.Split(text))
        << "round " << round << ": " << ::testing::PrintToString(text);
  }
}

TEST(PieceSplitter, EveryCharacterIsInTheClassThatTheReleasedPatternsSee) {
  const ReleasedPatterns patterns;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (!InBothVersions(c)) continue;
    const std::string text = "a" + Utf8(c) + "b " + Utf8(c) + " . " + Utf8(c);
    ASSERT_EQ(Split(text), patterns.Split(text)) << std::hex << c;
  }
}

}  // namespace
}  // namespace millrace::text
