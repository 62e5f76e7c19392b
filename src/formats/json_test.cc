#include "formats/json.h"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

namespace millrace::formats {
namespace {

using testing::HasSubstr;

std::string ErrorOf(std::string_view text, const JsonLimits& limits = {}) {
  const Result<boost::json::value> value = ParseJson(text, limits);
  return value.ok() ? "accepted: " + boost::json::serialize(*value) : value.error().message();
}

TEST(Json, KeepsValuesAndOrder) {
  const auto value =
      ParseJson(R"({"b": [1, -2, 18446744073709551615, null, true], "a": "\u00e9\n", "": {}})");
  ASSERT_TRUE(value.ok()) << value.error().message();
  EXPECT_EQ(boost::json::serialize(*value),
            "{\"b\":[1,-2,18446744073709551615,null,true],\"a\":\"\u00e9\\n\",\"\":{}}");
}

TEST(Json, NumbersAreTheNearestDouble) {
  for (const char* text :
       {"0.3", "1e-20", "1E-06", "-0.1", "123456789.123456789", "1.7976931348623157e308", "5e-324",
        "0.1000000000000000055511151231257827", "9007199254740993.0", "36893488147419103232"}) {
    const auto value = ParseJson(text);
    ASSERT_TRUE(value.ok()) << text;
    ASSERT_TRUE(value->is_double()) << text;
    EXPECT_EQ(value->get_double(), std::strtod(text, nullptr)) << text;
  }
}

TEST(Json, NumbersBeyondADoubleAreRefusedAndTinyOnesAreZero) {
  EXPECT_THAT(ErrorOf("[1e999]"), HasSubstr("too large"));
  EXPECT_THAT(ErrorOf("[-1e999]"), HasSubstr("too large"));
  const auto tiny = ParseJson("1e-999");
  ASSERT_TRUE(tiny.ok()) << tiny.error().message();
  EXPECT_EQ(tiny->get_double(), 0.0);
}

TEST(Json, RepeatedKeysAreRefusedAtEveryLevel) {
  EXPECT_THAT(ErrorOf(R"({"a": 1, "b": 2, "a": 3})"), HasSubstr(R"(the key "a" appears twice)"));
  EXPECT_THAT(ErrorOf(R"({"x": [{"a": 1}, {"a": {"b": 1, "b": 1}}]})"),
              HasSubstr(R"(the key "b" appears twice)"));
  EXPECT_THAT(ErrorOf(R"({"a": 1, "\u0061": 3})"), HasSubstr(R"(the key "a" appears twice)"));
  EXPECT_TRUE(ParseJson(R"([{"a": 1}, {"a": 1}, {"b": {"a": 1}, "a": 2}])").ok());
}

TEST(Json, WhatIsNotStrictIsRefused) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "[1,]",
                           "{\"a\":1,}",
                           "[1] x",
                           "{} {}",
                           "// c\n1",
                           "'a'",
                           "NaN",
                           "Infinity",
                           "01",
                           "+1",
                           "1.",
                           ".5",
                           "\"\t\"",
                           "\"\\x\"",
                           "\"\xff\"",
                           "\"\xed\xa0\x80\"",
                           "\"\\ud800\"",
                           "\xef\xbb\xbf{}",
                           "nul",
                           "{1: 2}"}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("not valid JSON at line")) << text;
  }
}

TEST(Json, ErrorsSayWhere) {
  EXPECT_THAT(ErrorOf("{\n  \"a\": 1,\n  \"b\": oops\n}"), HasSubstr("line 3, column 8"));
}

TEST(Json, DepthIsLimited) {
  const JsonLimits limits{.max_depth = 4};
  EXPECT_TRUE(ParseJson("[[[[1]]]]", limits).ok());
  EXPECT_THAT(ErrorOf("[[[[[1]]]]]", limits), HasSubstr("deeper than 4 levels"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, '[')), HasSubstr("deeper than 32 levels"));
}

TEST(Json, SizeIsLimited) {
  const JsonLimits limits{.max_bytes = 4};
  EXPECT_TRUE(ParseJson("1234", limits).ok());
  EXPECT_THAT(ErrorOf("12345", limits), HasSubstr("5 bytes, at most 4"));
}

TEST(Json, QuotedIsSafeToPrint) {
  EXPECT_EQ(Quoted("a\"b\n\x1b[31m"), R"("a\"b\n\u001b[31m")");
  const std::string cut = Quoted(std::string(119, 'x') + "\u00e9" + std::string(1000, 'y'));
  EXPECT_EQ(cut, "\"" + std::string(119, 'x') + "\"...");
}

}  // namespace
}  // namespace millrace::formats
