#include "api/chat_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/openai_decode.h"
#include "text/reasoning_effort.h"

namespace millrace::api {
namespace {

using ::testing::HasSubstr;

TEST(ChatDefaults, AreReadAsRequestsNameThem) {
  const auto both = ParseChatDefaults(R"({"thinking": true, "reasoning_effort": "max"})");
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->thinking, true);
  EXPECT_EQ(both->reasoning_effort, text::kMaxEffort);
  EXPECT_EQ(ParseChatDefaults(R"({"enable_thinking": false})")->thinking, false);
  EXPECT_EQ(ParseChatDefaults(R"({"reasoning_effort": 30})")->reasoning_effort, 30);
  EXPECT_EQ(ParseChatDefaults(R"({"reasoning_effort": "none"})")->thinking, false);
  EXPECT_EQ(ParseChatDefaults("{}")->thinking, std::nullopt);
}

TEST(ChatDefaults, WhatIsWrongIsNamed) {
  const auto message = [](const char* json) {
    const auto parsed = ParseChatDefaults(json);
    return parsed.ok() ? "accepted" : parsed.error().message();
  };
  EXPECT_THAT(message(R"({"thinkin": true})"), HasSubstr("'thinkin' is no default"));
  EXPECT_THAT(message(R"({"thinking": "yes"})"), HasSubstr("'thinking'"));
  EXPECT_THAT(message(R"({"reasoning_effort": 101})"), HasSubstr("101"));
  EXPECT_THAT(message(R"({"reasoning_effort": []})"), HasSubstr("reasoning_effort"));
  EXPECT_THAT(message("thinking"), HasSubstr("JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("object"));
}

TEST(ChatDefaults, DecideOnlyWhatTheRequestLeavesOpen) {
  const auto options = [](const ChatDefaults& defaults, const std::string& fields) {
    const auto decoded =
        DecodeChatRequest(R"({"messages":[{"role":"user","content":"a"}])" + fields + "}", defaults);
    return std::get<ChatCompletionRequest>(decoded).chat.options;
  };
  const ChatDefaults off{.thinking = false}, hard{.thinking = true, .reasoning_effort = text::kMaxEffort};
  EXPECT_TRUE(options({}, "").thinking);
  EXPECT_FALSE(options(off, "").thinking);
  EXPECT_TRUE(options(off, R"(,"reasoning_effort":"low")").thinking);
  EXPECT_TRUE(options(off, R"(,"thinking":{"type":"enabled"})").thinking);
  EXPECT_EQ(options(hard, "").reasoning_effort, text::kMaxEffort);
  EXPECT_EQ(options(hard, R"(,"reasoning_effort":"low")").reasoning_effort, text::kLowEffort);
  EXPECT_FALSE(options(hard, R"(,"enable_thinking":false)").thinking);
}

}  // namespace
}  // namespace millrace::api
