// What the model generated is what the next turn's prompt contains, token for token, however the client sends
// it back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "api/server_answers_testing.h"

namespace millrace::api {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

constexpr const char* kTools = R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";

// Written as the model would not be spelled again: other spacing in JSON, keys out of order, tokens in
// pieces.
constexpr const char* kCalls =
    "Two calls.</think>Let me see.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
    "<｜DSML｜ parameter name=\"b\" string=\"false\">{\"y\":1.50,  \"x\":[1,2]}</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"a\" string=\"true\">s</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
    "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">t</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n</｜DSML｜ calls>";

class ServerReplayTest : public ServerAnswersTest {
 protected:
  // One turn; its message as the client got it.
  json::object Turn(const json::array& messages, const std::string& answer,
                    const std::string& fields = kTools) {
    std::vector<TokenId> script = server_->tokenizer().EncodePrompt(answer);
    model().PlayByDefault(std::move(script));
    ++turns_;
    const std::string body = R"({"temperature":0,"messages":)" + json::serialize(messages) + fields + "}";
    return FirstChoice(Answer(kChatPath, body)).at("message").as_object();
  }

  // Whether the last turn's prompt begins with all that was read and generated in the turn before it.
  void ExpectLastTurnExtendsTheOneBefore() {
    const std::vector<TokenId> before = Read(turns_ - 1), after = Read(turns_);
    ASSERT_FALSE(before.empty());
    ASSERT_GT(after.size(), before.size());
    EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()))
        << server_->tokenizer().Decode(before, text::ControlTokens::kKeep) << "\nis not the beginning of\n"
        << server_->tokenizer().Decode(after, text::ControlTokens::kKeep);
  }

  static json::object User(const char* text) { return {{"role", "user"}, {"content", text}}; }
  static json::object Result(const json::value& call, const char* text) {
    return {{"role", "tool"}, {"tool_call_id", call.at("id")}, {"content", text}};
  }
  static json::object& Function(json::object& message, size_t call) {
    return message["tool_calls"].as_array()[call].as_object()["function"].as_object();
  }

  uint64_t turns_ = 0;
};

TEST_F(ServerReplayTest, CallsAreRepeatedHoweverTheyComeBack) {
  using Change = void (*)(json::object & message);
  const std::pair<const char*, Change> changes[] = {
      {"as they were", [](json::object&) {}},
      {"without reasoning",
       [](json::object& message) {
         message.erase("reasoning_content");
         message.erase("reasoning");
       }},
      {"arguments written anew",
       [](json::object& message) {
         Function(message, 0)["arguments"] = R"({"a":"s","b":{"x":[1,2],"y":1.5}})";
       }},
      {"arguments as an object",
       [](json::object& message) {
         Function(message, 0)["arguments"] = json::parse(R"({"a":"s","b":{"x":[1,2],"y":1.5}})");
       }},
      {"with call ids of a gateway",
       [](json::object& message) {
         int number = 0;
         for (json::value& call : message["tool_calls"].as_array())
           call.as_object()["id"] = "gw-" + std::to_string(++number);
       }},
      {"all of it",
       [](json::object& message) {
         message.erase("reasoning_content");
         message.erase("reasoning");
         Function(message, 0)["arguments"] = R"({"a": "s", "b": {"x": [1.0, 2], "y": 15e-1}})";
         message["tool_calls"].as_array()[0].as_object()["id"] = "one";
         message["tool_calls"].as_array()[1].as_object()["id"] = "two";
       }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    turns_ = 0;
    ASSERT_NO_FATAL_FAILURE(Start());
    json::array messages = {User("Go.")};
    json::object message = Turn(messages, kCalls);
    change(message);
    const json::array calls = message.at("tool_calls").as_array();
    messages.push_back(message);
    messages.push_back(Result(calls[1], "second"));
    messages.push_back(Result(calls[0], "first"));
    json::object last = Turn(messages, "Done.</think>That was it.");
    ExpectLastTurnExtendsTheOneBefore();

    // The turn after that: both answers come back, and results in another order.
    last.erase("reasoning_content");
    last.erase("reasoning");
    std::swap(messages[messages.size() - 1], messages[messages.size() - 2]);
    messages.push_back(last);
    messages.push_back(User("And now?"));
    Turn(messages, "Nothing.</think>Nothing.");
    ExpectLastTurnExtendsTheOneBefore();
    EXPECT_THAT(AskOnce(port(), "GET", "/metrics").body, HasSubstr("millrace_replay_hits_total 3"));
  }
}

TEST_F(ServerReplayTest, AStreamedAnswerIsRememberedToo) {
  ASSERT_NO_FATAL_FAILURE(Start());
  json::array messages = {User("Go.")};
  server_->PlayByDefault("Odd sp acing.</think>An swer  .");
  ++turns_;
  Stream(kChatPath,
         R"({"stream":true,"temperature":0,"messages":)" + json::serialize(messages) + kTools + "}");
  messages.push_back({{"role", "assistant"}, {"content", "An swer  ."}});
  messages.push_back(User("More."));
  Turn(messages, "</think>Yes.");
  ExpectLastTurnExtendsTheOneBefore();
}

TEST_F(ServerReplayTest, TokensThatTextWouldNotGiveAgainAreRepeated) {
  ASSERT_NO_FATAL_FAILURE(Start());
  // Letter by letter, as no tokenizer would cut it.
  std::vector<TokenId> script = server_->tokenizer().EncodePrompt("</think>");
  for (const char* letter : {"H", "e", "l", "l", "o"})
    script.push_back(server_->tokenizer().EncodeText(letter).at(0));
  ASSERT_NE(server_->tokenizer().EncodeText("Hello").size(), 5u);
  model().PlayByDefault(script);
  json::array messages = {User("Go.")};
  ++turns_;
  const json::object body =
      Answer(kChatPath, R"({"temperature":0,"messages":)" + json::serialize(messages) + kTools + "}");
  messages.push_back(FirstChoice(body).at("message"));
  messages.push_back(User("More."));
  Turn(messages, "</think>Yes.");
  ExpectLastTurnExtendsTheOneBefore();
}

TEST_F(ServerReplayTest, TheOnlyCallIsRepeatedWithItsBlockClosed) {
  ASSERT_NO_FATAL_FAILURE(Start());
  json::array messages = {User("Go.")};
  const json::object message =
      Turn(messages, kCalls, std::string(kTools) + R"(,"parallel_tool_calls":false)");
  ASSERT_EQ(message.at("tool_calls").as_array().size(), 1u);
  messages.push_back(message);
  messages.push_back(Result(message.at("tool_calls").at(0), "r"));
  Turn(messages, "</think>Done.");
  const std::string prompt = server_->tokenizer().Decode(Read(turns_), text::ControlTokens::kKeep);
  EXPECT_THAT(prompt, HasSubstr(R"({"y":1.50,  "x":[1,2]})")) << "as it was generated";
  EXPECT_THAT(prompt, HasSubstr("</｜DSML｜ invoke>\n</｜DSML｜ calls><｜end▁of▁sentence｜><｜User｜>"));
}

TEST_F(ServerReplayTest, AChangedAnswerIsReadAsItCame) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto misses = [&] {
    return AskOnce(port(), "GET", "/metrics").body.find("millrace_replay_misses_total 1") !=
           std::string::npos;
  };
  json::array messages = {User("Go.")};
  json::object message = Turn(messages, kCalls);
  Function(message, 1)["arguments"] = R"({"a":"changed"})";
  messages.push_back(message);
  messages.push_back(User("Well?"));
  Turn(messages, "</think>Done.");
  EXPECT_TRUE(misses());
  EXPECT_THAT(server_->tokenizer().Decode(Read(turns_), text::ControlTokens::kKeep), HasSubstr(">changed<"));
}

TEST_F(ServerReplayTest, NothingIsRememberedWithoutRoom) {
  ScriptedServerOptions options;
  options.service.replay_bytes = 0;
  ASSERT_NO_FATAL_FAILURE(Start(options));
  json::array messages = {User("Go.")};
  messages.push_back(Turn(messages, "</think>Yes."));
  messages.push_back(User("More."));
  Turn(messages, "</think>Yes.");
  EXPECT_THAT(AskOnce(port(), "GET", "/metrics").body, HasSubstr("millrace_replay_hits_total 0"));
}

}  // namespace
}  // namespace millrace::api
