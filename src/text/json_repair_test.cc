#include "text/json_repair.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::text {
namespace {

TEST(JsonRepair, LeavesValidTextAlone) {
  const std::string text = "{\"k\":\"\\ud83d\\ude00 \u00e9 \U0001F600 \\\\u\\n\"}";
  EXPECT_EQ(RepairJsonText(text), text);
  EXPECT_EQ(RepairJsonText("\\"), "\\");
  EXPECT_EQ(RepairJsonText("\\u12"), "\\u12");
  EXPECT_EQ(RepairJsonText("\\\xFF"), "\\\uFFFD");
}

TEST(JsonRepair, BrokenCharactersAndLoneSurrogatesAreReplaced) {
  EXPECT_EQ(RepairJsonText("\"a\xC3\""), "\"a\uFFFD\"");
  EXPECT_EQ(RepairJsonText(R"("\ud83d\ud83d\ude00\ude00")"), R"("\ufffd\ud83d\ude00\ufffd")");
}

}  // namespace
}  // namespace millrace::text
