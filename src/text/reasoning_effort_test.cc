#include "text/reasoning_effort.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::text {
namespace {

TEST(ReasoningEffort, NamesAndNumbersAreUnderstood) {
  const auto is = [](std::string_view value, bool thinking, int effort) {
    const auto mode = ParseReasoningEffort(value);
    return mode.ok() && mode->thinking == thinking && (!thinking || mode->effort == effort);
  };
  for (const char* name : {"none", "off", "disabled"}) EXPECT_TRUE(is(name, false, 0)) << name;
  for (const char* name : {"minimal", "low", "50"}) EXPECT_TRUE(is(name, true, 50)) << name;
  for (const char* name : {"medium", "high", "xhigh", "75"}) EXPECT_TRUE(is(name, true, 75)) << name;
  for (const char* name : {"max", "ultra", "100"}) EXPECT_TRUE(is(name, true, 100)) << name;
  EXPECT_TRUE(is("1", true, 1));
  for (const char* bad : {"", "0", "101", "-5", "5.0", "High", " 7", "99999999999999999999"}) {
    EXPECT_FALSE(ParseReasoningEffort(bad).ok()) << bad;
  }
}

TEST(ReasoningEffort, V4FoldsTheNumberIntoThreeDegrees) {
  for (const std::optional<int> low : {std::optional<int>(), std::optional(1), std::optional(50)}) {
    EXPECT_EQ(EffortText(ChatModel::kV4, low), "");
  }
  for (const int high : {51, 75}) {
    EXPECT_THAT(EffortText(ChatModel::kV4, high),
                ::testing::StartsWith("Reasoning Effort: Absolute maximum"));
  }
  for (const int max : {76, 100}) {
    EXPECT_THAT(EffortText(ChatModel::kV4, max), ::testing::StartsWith("Reasoning Effort: Beyond maximum"));
  }
}

TEST(ReasoningEffort, V41NamesTheNumber) {
  EXPECT_THAT(EffortText(ChatModel::kV41, 37), ::testing::StartsWith("Reasoning Effort: 37 (range"));
  EXPECT_EQ(EffortText(ChatModel::kV41, std::nullopt), EffortText(ChatModel::kV41, kHighEffort));
}

}  // namespace
}  // namespace millrace::text
