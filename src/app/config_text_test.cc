#include "app/config_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Values(const std::string& text) {
  const auto parsed = ParseConfig(text);
  if (!parsed.ok()) return {"error: " + parsed.error().message()};
  return parsed->at(0).values;
}

std::string Message(const std::string& text) {
  const auto parsed = ParseConfig(text);
  return parsed.ok() ? "accepted" : parsed.error().message();
}

TEST(ConfigText, ReadsKeysValuesAndComments) {
  const auto parsed = ParseConfig("---\n# head\nport: 8000  # why\n\nmodel:  /a b/c#d\r\nhost: x\n");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  ASSERT_EQ(parsed->size(), 3u);
  EXPECT_EQ(parsed->at(0).key, "port");
  EXPECT_EQ(parsed->at(0).line, 3);
  EXPECT_THAT(parsed->at(0).values, ElementsAre("8000"));
  EXPECT_THAT(parsed->at(1).values, ElementsAre("/a b/c#d"));
}

TEST(ConfigText, ReadsLists) {
  EXPECT_THAT(Values("k: [a, \"b, c\", 'd']  # e"), ElementsAre("a", "b, c", "d"));
  EXPECT_THAT(Values("k:\n  - a\n  # b\n- 'c d'\n"), ElementsAre("a", "c d"));
  EXPECT_THAT(Values("k: []x"), ElementsAre(HasSubstr("more behind the value")));
}

TEST(ConfigText, ReadsQuotes) {
  EXPECT_THAT(Values(R"(k: "a\"b\\c\n")"), ElementsAre("a\"b\\c\n"));
  EXPECT_THAT(Values(R"(k: '{"thinking":true}')"), ElementsAre(R"({"thinking":true})"));
  EXPECT_THAT(Values(R"(k: {"thinking": true})"), ElementsAre(R"({"thinking": true})"));
}

TEST(ConfigText, WhatIsNotOfTheFormIsRefusedByItsLine) {
  EXPECT_EQ(Message("port 8000"), "line 1: expected 'key: value'");
  EXPECT_THAT(Message("a: 1\nb:8000"), HasSubstr("line 2: expected 'key: value'"));
  // A key whose colon was forgotten must not reach a log.
  EXPECT_THAT(Message("api-key sk-secret"), Not(HasSubstr("secret")));
  EXPECT_THAT(Message("a: 1\n  b: 2"), HasSubstr("line 2: nothing may be nested"));
  EXPECT_THAT(Message("- a"), HasSubstr("line 1: nothing may be nested"));
  EXPECT_THAT(Message("a: 1\na: 2"), HasSubstr("line 2: 'a' is given a second time, first on line 1"));
  EXPECT_THAT(Message("a: \"x"), HasSubstr("line 1: the quote \" is not closed"));
  EXPECT_THAT(Message("a: \"x\" y"), HasSubstr("line 1: there is more behind the value"));
  EXPECT_THAT(Message("a: [x"), HasSubstr("line 1: the list has no ']'"));
  EXPECT_THAT(Message("a:\nb: 1"), HasSubstr("line 1: 'a' has no value"));
}

TEST(ConfigText, WhatItWritesItReadsBack) {
  for (const std::vector<std::string>& values : std::vector<std::vector<std::string>>{{"a"},
                                                                                      {"", "b"},
                                                                                      {" x "},
                                                                                      {"-1"},
                                                                                      {"a#b", "c, d", "[e]"},
                                                                                      {"q\"u\\o'te"},
                                                                                      {"two\nlines\t."},
                                                                                      {"'single'"},
                                                                                      {R"({"a":[1]})"}}) {
    EXPECT_EQ(Values(FormatConfigEntry("k", values, values.size() > 1)), values);
    EXPECT_EQ(Values(FormatConfigEntry("k", values, true)), values);
  }
}

}  // namespace
}  // namespace millrace::app
