#include "text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::text {
namespace {

using namespace std::string_literals;

TEST(Utf8, WellFormedTextIsUnchanged) {
  for (const std::string& text :
       {""s, "plain"s, "\0 nul"s, "é € 😀"s, "\xF4\x8F\xBF\xBF"s, "\xED\x9F\xBF"s, "\xEE\x80\x80"s}) {
    EXPECT_TRUE(IsUtf8(text));
    EXPECT_EQ(RepairUtf8(text), text);
  }
}

TEST(Utf8, EachMaximalSubpartBecomesOneReplacement) {
  const std::string r(kReplacementCharacter);
  const struct {
    std::string bytes, text;
  } cases[] = {
      {"\x80", r},
      {"\xC0\xAF", r + r},                  // overlong: neither byte starts anything
      {"\xE0\x80\xAF", r + r + r},          // second byte out of range for this lead
      {"\xED\xA0\x80", r + r + r},          // surrogate
      {"\xF4\x90\x80\x80", r + r + r + r},  // beyond U+10FFFF
      {"\xF0\x9F\x98", r},                  // cut off: one subpart
      {"\xF0\x9F\x98x", r + "x"},
      {"\xE4\xBD\xE4\xBD\xA0", r + "你"},  // the next lead is not swallowed
      {"\xFE\xFF", r + r},
  };
  for (const auto& c : cases) {
    EXPECT_FALSE(IsUtf8(c.bytes));
    EXPECT_EQ(RepairUtf8(c.bytes), c.text);
  }
}

TEST(Utf8, ABadByteIsFoundAtEveryOffset) {
  for (size_t length = 1; length < 40; ++length) {
    for (size_t bad = 0; bad < length; ++bad) {
      std::string text(length, 'a');
      EXPECT_TRUE(IsUtf8(text));
      text[bad] = '\xFF';
      EXPECT_FALSE(IsUtf8(text));
    }
  }
}

TEST(Utf8, ATruncatedCharacterIsToldFromAnIllFormedOne) {
  EXPECT_EQ(NextUtf8Unit("\xE2\x82").kind, Utf8Kind::kCutOff);
  EXPECT_EQ(NextUtf8Unit("\xE2\x82").length, 2u);
  EXPECT_EQ(NextUtf8Unit("\xE2\x28").kind, Utf8Kind::kIllFormed);
  EXPECT_EQ(NextUtf8Unit("\xE2\x28").length, 1u);
  EXPECT_EQ(NextUtf8Unit("\xE2\x82\xAC!").kind, Utf8Kind::kCharacter);
  EXPECT_EQ(NextUtf8Unit("\xE2\x82\xAC!").length, 3u);
}

}  // namespace
}  // namespace millrace::text
