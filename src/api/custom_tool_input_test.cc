#include "api/custom_tool_input.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace millrace::api {
namespace {

// What the stream gives of `arguments` in pieces of at least `bytes`, of whole characters.
std::string Streamed(const std::string& arguments, size_t bytes) {
  CustomToolInputStream stream;
  std::string input;
  for (size_t at = 0; at < arguments.size();) {
    size_t end = std::min(at + bytes, arguments.size());
    while (end < arguments.size() && (static_cast<unsigned char>(arguments[end]) & 0xC0) == 0x80) ++end;
    input += stream.Push(std::string_view(arguments).substr(at, end - at));
    at = end;
  }
  return input;
}

TEST(CustomToolInput, ComesBackFromItsArguments) {
  const std::string text = "*** Begin\n\t\"a\\b\" / \x01\u00e9\U0001F600";
  const std::string arguments = CustomToolArguments(text);
  EXPECT_EQ(CustomToolInput(arguments), text);
  for (size_t bytes = 1; bytes <= arguments.size(); ++bytes)
    EXPECT_EQ(Streamed(arguments, bytes), text) << bytes;
}

TEST(CustomToolInput, StreamsEscapesWhole) {
  for (size_t bytes = 1; bytes < 20; ++bytes) {
    EXPECT_EQ(Streamed(R"({"input": "\ud83d\ude00 \u00e9\\u0041\"", "more": 1})", bytes),
              "\U0001F600 \u00e9\\u0041\"");
    EXPECT_EQ(Streamed(R"({"input": "\ud83d x"})", bytes), "\uFFFD x");
  }
  CustomToolInputStream stream;
  EXPECT_EQ(stream.Push(R"({"input": "ab)"), "ab");
  EXPECT_EQ(stream.Push(R"(\ud83d)"), "");
  EXPECT_EQ(stream.Push(R"(\ude0)"), "");
  EXPECT_EQ(stream.Push("0c"), "\U0001F600c");
  EXPECT_EQ(stream.Push(R"("})"), "");
}

TEST(CustomToolInput, OtherArgumentsAreGivenAsTheyAre) {
  for (const char* arguments :
       {"{}", R"({"patch": "x"})", R"({"input": 7})", R"({"input)", R"({"inputs": "x"})"}) {
    EXPECT_EQ(CustomToolInput(arguments), arguments);
    EXPECT_EQ(Streamed(arguments, 1), "") << arguments;
  }
  EXPECT_EQ(CustomToolInput(R"({"a": 1, "input": "x"})"), "x");
}

}  // namespace
}  // namespace millrace::api
