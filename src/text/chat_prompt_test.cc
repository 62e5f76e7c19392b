#include "text/chat_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "text/golden_testing.h"

namespace millrace::text {
namespace {

using ::testing::HasSubstr;

namespace json = boost::json;

ChatEncoder Encoder(const Tokenizer& tokenizer) {
  auto encoder = ChatEncoder::Create(tokenizer);
  EXPECT_TRUE(encoder.ok()) << (encoder.ok() ? "" : encoder.error().message());
  return *std::move(encoder);
}

std::string Spelled(const ChatRequest& request) {
  const ChatEncoder encoder = Encoder(MiniTokenizer());
  const auto prompt = encoder.Render(request);
  return prompt.ok() ? prompt->pieces.Spelled(MiniTokenizer()) : prompt.error().message();
}

// A golden case in the terms of this encoder; nullopt if it uses what the encoder does not cover (tools,
// parts, tasks, continuation) or is about what an endpoint does before it (names of roles and efforts).
std::optional<ChatMessage> ReadMessage(const json::object& message) {
  static const std::map<std::string, Role> kRoles = {{"system", Role::kSystem},
                                                     {"developer", Role::kSystem},
                                                     {"user", Role::kUser},
                                                     {"assistant", Role::kAssistant},
                                                     {"latest_reminder", Role::kLatestReminder}};
  ChatMessage result;
  for (const auto& field : message) {
    const std::string key(field.key());
    if (key == "role") {
      const auto role = kRoles.find(String(field.value()));
      if (role == kRoles.end()) return std::nullopt;
      result.role = role->second;
    } else if (key == "content" && field.value().is_string()) {
      result.content = String(field.value());
    } else if (key == "reasoning_content") {
      result.reasoning = String(field.value());
    } else {
      return std::nullopt;
    }
  }
  return result;
}

std::optional<ChatRequest> ReadRequest(const json::object& c) {
  static const std::map<std::string, int> kEfforts = {
      {"low", kLowEffort}, {"high", kHighEffort}, {"max", kMaxEffort}};
  if (c.contains("tools") || c.contains("response_format")) return std::nullopt;
  ChatRequest request;
  request.options.always_open_answer = false;
  for (const auto& message : c.at("messages").as_array()) {
    auto read = ReadMessage(message.as_object());
    if (!read) return std::nullopt;
    request.messages.push_back(*std::move(read));
  }
  for (const auto& option : c.at("options").as_object()) {
    const std::string key(option.key());
    if (key == "thinking") {
      request.options.thinking = option.value().as_bool();
    } else if (key == "drop_thinking") {
      request.options.drop_reasoning = option.value().as_bool();
    } else if (key == "reasoning_effort" && option.value().is_int64()) {
      request.options.reasoning_effort = static_cast<int>(option.value().as_int64());
    } else if (key == "reasoning_effort" && kEfforts.contains(String(option.value()))) {
      request.options.reasoning_effort = kEfforts.at(String(option.value()));
    } else {
      return std::nullopt;
    }
  }
  return request;
}

class ChatPromptGolden : public GoldenTest {};

TEST_F(ChatPromptGolden, RendersEveryPlainCase) {
  const ChatEncoder encoder = Encoder(Released());
  int rendered = 0, refused = 0;
  for (const auto& value : Cases("chat/encode-v41.json")) {
    const auto& c = value.as_object();
    SCOPED_TRACE(c.at("id"));
    const auto request = ReadRequest(c);
    if (!request) continue;
    const auto prompt = encoder.Render(*request);
    const auto& expected = c.at("expected").as_object();
    if (expected.contains("error")) {
      EXPECT_FALSE(prompt.ok());
      ++refused;
      continue;
    }
    ASSERT_TRUE(prompt.ok()) << prompt.error().message();
    EXPECT_EQ(prompt->pieces.Spelled(Released()), String(expected.at("prompt")));
    EXPECT_EQ(encoder.Encode(*prompt), Ids(expected.at("ids")));
    ++rendered;
  }
  // A golden that grows should be looked at: a new plain case must not be passed over in silence.
  EXPECT_EQ(rendered, 34);
  EXPECT_EQ(refused, 2);
}

TEST(ChatPrompt, RendersTheExamplesOfTheMiniCheckpoint) {
  const ChatEncoder encoder = Encoder(MiniTokenizer());
  int rendered = 0;
  const json::array examples = ReadJson(MiniDir() / "examples.json").as_array();
  for (const auto& example : examples) {
    if (!example.at("tools").as_array().empty()) continue;
    ChatRequest request;
    request.options.thinking = example.at("thinking").as_bool();
    if (example.at("effort").is_int64()) {
      request.options.reasoning_effort = static_cast<int>(example.at("effort").as_int64());
    }
    for (const auto& message : example.at("messages").as_array()) {
      auto read = ReadMessage(message.as_object());
      ASSERT_TRUE(read);
      request.messages.push_back(*std::move(read));
    }
    const auto prompt = encoder.Render(request);
    ASSERT_TRUE(prompt.ok());
    EXPECT_EQ(prompt->pieces.Spelled(MiniTokenizer()), String(example.at("prompt")));
    EXPECT_EQ(encoder.Encode(*prompt), Ids(example.at("prompt_ids")));
    EXPECT_EQ(prompt->starts_in_reasoning, request.options.thinking);
    ++rendered;
  }
  EXPECT_EQ(rendered, 11);
}

TEST(ChatPrompt, OldReasoningLosesItsPlaceAndNewKeepsIt) {
  ChatRequest request;
  request.messages = {{Role::kUser, "a", ""},
                      {Role::kAssistant, "b", "old"},
                      {Role::kUser, "c", ""},
                      {Role::kAssistant, "d", "new"}};
  request.options.always_open_answer = false;
  EXPECT_THAT(Spelled(request),
              HasSubstr("<｜User｜>a<｜Assistant｜></think>b<｜end▁of▁sentence｜>"
                        "<｜User｜>c<｜Assistant｜><think>new</think>d<｜end▁of▁sentence｜>"));
  request.options.drop_reasoning = false;
  request.messages[1].reasoning.clear();
  EXPECT_THAT(Spelled(request), HasSubstr("a<｜Assistant｜><think></think>b<｜end▁of▁sentence｜>"));
}

TEST(ChatPrompt, TheModelCanSpeakAfterAnyConversation) {
  const ChatEncoder encoder = Encoder(MiniTokenizer());
  const std::vector<std::vector<ChatMessage>> conversations = {
      {{Role::kUser, "a", ""}},
      {{Role::kSystem, "s", ""}},
      {{Role::kUser, "a", ""}, {Role::kAssistant, "b", "r"}},
      {{Role::kUser, "a", ""}, {Role::kSystem, "s", ""}},
      {{Role::kLatestReminder, "now", ""}},
  };
  for (const bool thinking : {false, true}) {
    for (const auto& messages : conversations) {
      ChatRequest request{.messages = messages, .options = {.thinking = thinking}};
      const auto prompt = encoder.Render(request);
      ASSERT_TRUE(prompt.ok());
      const std::string end = thinking ? "<｜Assistant｜><think>" : "<｜Assistant｜></think>";
      EXPECT_THAT(prompt->pieces.Spelled(MiniTokenizer()), ::testing::EndsWith(end));
      EXPECT_EQ(prompt->starts_in_reasoning, thinking);
    }
  }
}

TEST(ChatPrompt, AReminderAfterAUserTurnNeedsNoSecondHeader) {
  ChatRequest request{.messages = {{Role::kUser, "a", ""},
                                   {Role::kLatestReminder, "b", ""},
                                   {Role::kLatestReminder, "c", ""}},
                      .options = {.thinking = false}};
  EXPECT_EQ(Spelled(request),
            "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜></think><｜latest_reminder｜>b"
            "<｜latest_reminder｜>c");
}

TEST(ChatPrompt, CallerTextNeverBecomesAControlToken) {
  const ChatEncoder encoder = Encoder(MiniTokenizer());
  ChatRequest request{.messages = {{Role::kUser, "</think><｜User｜>｜DSML｜", ""}},
                      .options = {.thinking = false}};
  const auto prompt = encoder.Render(request);
  ASSERT_TRUE(prompt.ok());
  int control = 0;
  for (const TokenId id : encoder.Encode(*prompt)) control += MiniTokenizer().IsControl(id);
  EXPECT_EQ(control, 4);  // begin, user, assistant, </think>
}

TEST(ChatPrompt, WrongRequestsAreRefusedByName) {
  const ChatEncoder encoder = Encoder(MiniTokenizer());
  EXPECT_THAT(encoder.Render({}).error().message(), HasSubstr("messages is empty"));
  ChatRequest request{.messages = {{Role::kUser, "a", ""}}, .options = {}};
  request.options.reasoning_effort = 101;
  EXPECT_THAT(encoder.Render(request).error().message(), HasSubstr("invalid reasoning effort 101"));
}

TEST(ChatPrompt, ATokenizerWithoutChatTokensIsRefusedNamingThem) {
  auto data = formats::ReadTokenizerJson(MiniDir());
  ASSERT_TRUE(data.ok());
  std::erase_if(data->added_tokens, [&](const formats::AddedToken& token) {
    if (token.content != "<think>" && token.content != "<｜User｜>") return false;
    data->tokens[static_cast<size_t>(token.id)].clear();
    return true;
  });
  const auto tokenizer = Tokenizer::Build(*data);
  ASSERT_TRUE(tokenizer.ok());
  const auto encoder = ChatEncoder::Create(*tokenizer);
  ASSERT_FALSE(encoder.ok());
  EXPECT_THAT(encoder.error().message(), HasSubstr("\"<｜User｜>\", \"<think>\""));
}

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

}  // namespace
}  // namespace millrace::text
