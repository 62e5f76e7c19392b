#include "text/ordered_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>

namespace millrace::text {
namespace {

using ::testing::HasSubstr;

OrderedJson Parsed(std::string_view text) {
  auto value = ParseOrderedJson(text);
  EXPECT_TRUE(value.ok()) << text << ": " << (value.ok() ? "" : value.error().message());
  return value.ok() ? *std::move(value) : OrderedJson();
}

std::string Rewritten(std::string_view text) {
  return PythonJson(Parsed(text));
}

std::string Refusal(std::string_view text, const OrderedJsonLimits& limits = {}) {
  const auto value = ParseOrderedJson(text, limits);
  return value.ok() ? "accepted" : value.error().message();
}

TEST(OrderedJson, KeepsOrderAndWritesAsPythonDoes) {
  EXPECT_EQ(Rewritten(R"({"b":[1,true,null,{}],"a":{"x":[],"":"é\u00e9😀"}})"),
            R"({"b": [1, true, null, {}], "a": {"x": [], "": "éé😀"}})");
  EXPECT_EQ(Rewritten(R"("\"\\\/\b\f\n\r\t\u0001\u001f\u007f\u2028")"),
            "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7F\u2028\"");
}

// Expected texts are what CPython 3.11 prints for json.dumps(json.loads(text)).
TEST(OrderedJson, WritesNumbersAsPythonDoes) {
  const std::pair<const char*, const char*> kNumbers[] = {
      {"0", "0"},
      {"-0", "0"},
      {"-0.0", "-0.0"},
      {"1.0", "1.0"},
      {"1.10", "1.1"},
      {"1e5", "100000.0"},
      {"2E2", "200.0"},
      {"1.5e-7", "1.5e-07"},
      {"1e-4", "0.0001"},
      {"0.00012345", "0.00012345"},
      {"0.000099", "9.9e-05"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"9999999999999998.0", "9999999999999998.0"},
      {"123456789.125", "123456789.125"},
      {"100000000000000000000.0", "1e+20"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"5e-324", "5e-324"},
      {"1e-400", "0.0"},
      {"-1e-400", "-0.0"},
      {"2.2250738585072011e-308", "2.225073858507201e-308"},
      {"0.1", "0.1"},
      {"0.30000000000000004", "0.30000000000000004"},
      {"123456789012345678901234567890", "123456789012345678901234567890"},
      {"-123456789012345678901234567890", "-123456789012345678901234567890"},
      {"18446744073709551615", "18446744073709551615"},
  };
  for (const auto& [text, expected] : kNumbers) {
    EXPECT_EQ(Rewritten(text), expected);
    EXPECT_EQ(Rewritten(std::string("[") + text + "]"), std::string("[") + expected + "]");
  }
}

TEST(OrderedJson, ARepeatedKeyKeepsItsFirstPlaceAndTakesTheLastValue) {
  EXPECT_EQ(Rewritten(R"({"a":1,"b":2,"a":[3],"c":4,"b":5,"a":6})"), R"({"a": 6, "b": 5, "c": 4})");
}

TEST(OrderedJson, FindsMembers) {
  const OrderedJson value = Parsed(R"({"a":{"b":"c"},"n":null})");
  EXPECT_EQ(*value.Find("a")->Find("b")->if_string(), "c");
  EXPECT_TRUE(value.Find("n")->is_null());
  EXPECT_EQ(value.Find("x"), nullptr);
  EXPECT_EQ(Parsed("[1]").Find("a"), nullptr);
}

TEST(OrderedJson, EqualityIsThatOfJsonValues) {
  EXPECT_EQ(Parsed(R"({"a":1.0,"b":[1e2,"x"]})"), Parsed(R"({"b":[100,"\u0078"],"a":1})"));
  EXPECT_EQ(Parsed("-0"), Parsed("0"));
  EXPECT_NE(Parsed("12345678901234567890123"), Parsed("12345678901234567890124"));
  for (const auto& [a, b] : {std::pair("[1,2]", "[2,1]"),
                             {"{\"a\":1}", "{\"b\":1}"},
                             {"\"1\"", "1"},
                             {"[]", "{}"},
                             {"{\"a\":1}", "{\"a\":1,\"b\":1}"},
                             {"true", "false"}}) {
    EXPECT_NE(Parsed(a), Parsed(b)) << a << b;
  }
}

TEST(OrderedJson, RepairsBrokenTextInsideStrings) {
  EXPECT_EQ(Rewritten(R"("a\ud800b")"), "\"a\uFFFDb\"");
  EXPECT_EQ(Rewritten("\"a\xFF\""), "\"a\uFFFD\"");
}

TEST(OrderedJson, RefusesWhatIsNotJsonSayingWhere) {
  for (const char* text : {"", "{", "{\"a\": ", "[1,]", "{\"a\" 1}", "01", "1.", "+1", "NaN", "Infinity", "-",
                           "'a'", "[1] 2", "\"\n\"", "tru", "{\"a\":1,}", "// c\n1"}) {
    EXPECT_THAT(Refusal(text), HasSubstr("not valid JSON at line ")) << text;
  }
  EXPECT_THAT(Refusal("{\n \"a\": x}"), HasSubstr("line 2, column 7"));
  EXPECT_THAT(Refusal("1e309"), HasSubstr("the number \"1e309\" is too large"));
  EXPECT_THAT(Refusal("[" + std::string(400, '9') + ".0]"), HasSubstr("is too large"));
}

TEST(OrderedJson, LimitsBoundWhatAHostileTextCosts) {
  EXPECT_EQ(Refusal(std::string(128, '[') + std::string(128, ']')), "accepted");
  EXPECT_THAT(Refusal(std::string(129, '[') + std::string(129, ']')), HasSubstr("deeper than 128 levels"));
  EXPECT_THAT(Refusal(std::string(1'000'000, '[')), HasSubstr("deeper than 128 levels"));
  EXPECT_THAT(Refusal("[1,2,3]", {.max_values = 3}), HasSubstr("more than 3 values"));
  EXPECT_THAT(Refusal("[1,2,3]", {.max_bytes = 6}), HasSubstr("has 7 bytes, at most 6"));
}

TEST(OrderedJson, ManyKeysTakeNoQuadraticTime) {
  std::string text = "{\"a\":0";
  for (int i = 0; i < 200'000; ++i)
    text += ",\"" + std::to_string(i % 150'000) + "\":[" + std::to_string(i) + "]";
  text += "}";
  const std::clock_t start = std::clock();
  const OrderedJson value = Parsed(text);
  EXPECT_EQ(value.if_object()->size(), 150'001u);
  EXPECT_EQ(value, Parsed(PythonJson(value)));
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 10.0);  // under a sanitizer; else 0.3
}

}  // namespace
}  // namespace millrace::text
