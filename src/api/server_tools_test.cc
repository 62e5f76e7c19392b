// Tools in chat/completions over a whole server with a scripted model: calls whole and streamed, choices of
// tools, forced and forbidden calls, and how answers end.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json/serialize.hpp>

#include <string>
#include <vector>

#include "api/server_answers_testing.h"
#include "engine/repetition_guard.h"

namespace millrace::api {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kTools = R"([{"type":"function","function":{"name":"get_weather","parameters":
    {"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}},
    {"type":"function","namespace":"mail","function":{"name":"send","parameters":{"type":"object"}}}])";

std::string Ask(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"Weather?"}],"temperature":0,"tools":)" +
         std::string(kTools) + fields + "}";
}

constexpr const char* kOpener = "\n\n<｜DSML｜ calls>\n";
constexpr const char* kCloser = "</｜DSML｜ calls>";
constexpr const char* kParis =
    "<｜DSML｜ invoke name=\"get_weather\">\n"
    "<｜DSML｜ parameter name=\"city\" string=\"true\">Paris</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"days\" string=\"false\">3</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n";
constexpr const char* kSend = "<｜DSML｜ invoke name=\"mail::send\">\n\n</｜DSML｜ invoke>\n";

std::string Block(const std::string& calls) {
  return kOpener + calls + kCloser;
}

class ServerToolsTest : public ServerAnswersTest {
 protected:
  // The answer to every prompt.
  void Play(const std::string& answer, ScriptedServerOptions options = {}) {
    ASSERT_NO_FATAL_FAILURE(Start(std::move(options)));
    server_->PlayByDefault(answer);
  }
  int64_t Tokens(const std::string& text) const {
    return static_cast<int64_t>(server_->tokenizer().EncodePrompt(text).size());
  }
};

const json::object& Message(const json::object& answer) {
  return FirstChoice(answer).at("message").as_object();
}

json::value Arguments(const json::value& call) {
  return json::parse(call.at("function").at("arguments").as_string());
}

// The pieces of a stream put together, as a client does.
struct Streamed {
  std::string reasoning;
  std::string content;
  std::vector<json::object> calls;  // {"id", "name", "arguments"}
  std::string finish_reason;
};

void AddCall(const json::object& piece, Streamed& streamed) {
  const auto index = static_cast<size_t>(piece.at("index").as_int64());
  const json::object& function = piece.at("function").as_object();
  if (piece.contains("id")) {
    ASSERT_EQ(index, streamed.calls.size()) << "calls are announced in order";
    EXPECT_EQ(piece.at("type").as_string(), "function");
    streamed.calls.push_back({{"id", piece.at("id")}, {"name", function.at("name")}, {"arguments", ""}});
  } else {
    EXPECT_FALSE(function.contains("name"));
    EXPECT_FALSE(function.at("arguments").as_string().empty());
  }
  ASSERT_LT(index, streamed.calls.size());
  json::string& arguments = streamed.calls[index]["arguments"].as_string();
  arguments.append(function.at("arguments").as_string());
}

Streamed Collect(const std::vector<json::object>& chunks) {
  Streamed streamed;
  for (const json::object& chunk : chunks) {
    const json::object& choice = FirstChoice(chunk);
    const json::object& delta = choice.at("delta").as_object();
    if (const json::value* text = delta.if_contains("content")) streamed.content += text->as_string();
    if (const json::value* text = delta.if_contains("reasoning_content"))
      streamed.reasoning += text->as_string();
    if (const json::value* calls = delta.if_contains("tool_calls")) {
      for (const json::value& call : calls->as_array()) AddCall(call.as_object(), streamed);
    }
    if (!choice.at("finish_reason").is_null())
      streamed.finish_reason = choice.at("finish_reason").as_string();
  }
  return streamed;
}

TEST_F(ServerToolsTest, AnAnswerCallsTools) {
  const std::string answer = "Ask.</think>Let me look." + Block(std::string(kParis) + kSend);
  Play(answer);
  const json::object body = Answer(kChatPath, Ask(""));
  EXPECT_EQ(FirstChoice(body).at("finish_reason").as_string(), "tool_calls");
  const json::object& message = Message(body);
  EXPECT_EQ(message.at("content").as_string(), "Let me look.");
  EXPECT_EQ(message.at("reasoning_content").as_string(), "Ask.");
  const json::array& calls = message.at("tool_calls").as_array();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_THAT(std::string(calls[0].at("id").as_string()), StartsWith("call_"));
  EXPECT_EQ(calls[0].at("id").as_string().size(), 29u);
  EXPECT_EQ(calls[0].at("type").as_string(), "function");
  EXPECT_EQ(calls[0].at("function").at("name").as_string(), "get_weather");
  EXPECT_EQ(Arguments(calls[0]), json::parse(R"({"city":"Paris","days":3})"));
  EXPECT_EQ(calls[1].at("function").at("name").as_string(), "send");
  EXPECT_EQ(calls[1].at("function").at("namespace").as_string(), "mail");
  EXPECT_EQ(Arguments(calls[1]), json::object());
  EXPECT_NE(calls[0].at("id"), calls[1].at("id"));
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), Tokens(answer) + 1);
  EXPECT_EQ(body.at("usage").at("completion_tokens_details").at("reasoning_tokens").as_int64(),
            Tokens("Ask."));
}

TEST_F(ServerToolsTest, ContentIsNullBesideCallsWithoutText) {
  Play("</think>" + Block(kParis));
  EXPECT_TRUE(Message(Answer(kChatPath, Ask(""))).at("content").is_null());
}

TEST_F(ServerToolsTest, AStreamSaysTheSameInPieces) {
  Play("Ask.</think>Let me look." + Block(std::string(kParis) + kSend));
  const std::vector<json::object> chunks = Stream(kChatPath, Ask(R"(,"stream":true)"));
  for (const json::object& chunk : chunks) EXPECT_THAT(json::serialize(chunk), Not(HasSubstr("DSML")));
  const Streamed streamed = Collect(chunks);
  EXPECT_EQ(streamed.reasoning, "Ask.");
  EXPECT_EQ(streamed.content, "Let me look.");
  EXPECT_EQ(streamed.finish_reason, "tool_calls");
  ASSERT_EQ(streamed.calls.size(), 2u);
  EXPECT_EQ(streamed.calls[0].at("name").as_string(), "get_weather");
  EXPECT_EQ(json::parse(streamed.calls[0].at("arguments").as_string()),
            json::parse(R"({"city":"Paris","days":3})"));
  EXPECT_EQ(json::parse(streamed.calls[1].at("arguments").as_string()), json::object());
  EXPECT_TRUE(FirstChoice(chunks.back()).at("delta").as_object().empty());
}

TEST_F(ServerToolsTest, WithoutParallelCallsTheFirstEndsTheAnswer) {
  const std::string first = "Ask.</think>" + std::string(kOpener) + kParis;
  Play(first + kSend + kCloser);
  const json::object body = Answer(kChatPath, Ask(R"(,"parallel_tool_calls":false)"));
  EXPECT_EQ(FirstChoice(body).at("finish_reason").as_string(), "tool_calls");
  EXPECT_EQ(Message(body).at("tool_calls").as_array().size(), 1u);
  EXPECT_LE(body.at("usage").at("completion_tokens").as_int64(), Tokens(first));
  const Streamed streamed = Collect(Stream(kChatPath, Ask(R"(,"parallel_tool_calls":false,"stream":true)")));
  EXPECT_EQ(streamed.calls.size(), 1u);
  EXPECT_EQ(streamed.finish_reason, "tool_calls");
  WaitUntilFree();
}

TEST_F(ServerToolsTest, ACallCutByTheLimitIsNotReported) {
  const std::string answer = "</think>Look." + std::string(kOpener) + kParis;
  Play(answer);
  const std::string fields = R"(,"max_tokens":)" + std::to_string(Tokens(answer) - 4);
  const json::object body = Answer(kChatPath, Ask(fields));
  EXPECT_EQ(FirstChoice(body).at("finish_reason").as_string(), "length");
  EXPECT_EQ(Message(body).at("content").as_string(), "Look.");
  EXPECT_FALSE(Message(body).contains("tool_calls"));
}

TEST_F(ServerToolsTest, ToolsThatMustNotBeCalledAreNeitherShownNorReported) {
  Play("Ask.</think>Sunny." + Block(kParis));
  const json::object body = Answer(kChatPath, Ask(R"(,"tool_choice":"none")"));
  EXPECT_EQ(FirstChoice(body).at("finish_reason").as_string(), "stop");
  EXPECT_EQ(Message(body).at("content").as_string(), "Sunny.");
  EXPECT_FALSE(Message(body).contains("tool_calls"));
  const std::string prompt = server_->tokenizer().Decode(Read(1));
  EXPECT_THAT(prompt, Not(HasSubstr("## Tools")));
}

TEST_F(ServerToolsTest, WithoutToolsMarkupIsText) {
  Play("</think>Look." + Block(kParis));
  const json::object body =
      Answer(kChatPath, R"({"messages":[{"role":"user","content":"Weather?"}],"temperature":0})");
  EXPECT_THAT(std::string(Message(body).at("content").as_string()), HasSubstr("invoke name="));
  EXPECT_EQ(FirstChoice(body).at("finish_reason").as_string(), "stop");
}

// Forced tokens stand where the script has others: what is answered there shows that they were forced.
class ForcedCallTest : public ServerToolsTest {
 protected:
  void PlayAround(const std::string& reasoning, const std::string& forced, const std::string& rest) {
    ASSERT_NO_FATAL_FAILURE(Start());
    std::vector<TokenId> script = server_->tokenizer().EncodePrompt(reasoning);
    const TokenId other = server_->tokenizer().EncodeText("x").at(0);
    script.insert(script.end(), static_cast<size_t>(Tokens(forced)), other);
    const std::vector<TokenId> tail = server_->tokenizer().EncodePrompt(rest);
    script.insert(script.end(), tail.begin(), tail.end());
    model().PlayByDefault(script);
  }

  static constexpr const char* kRequired = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"";
  static constexpr const char* kNamed = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n";
  const std::string city_ =
      "<｜DSML｜ parameter name=\"city\" string=\"true\">Rome</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n</｜DSML｜ calls>";
};

TEST_F(ForcedCallTest, ARequiredCallComesBehindTheReasoning) {
  PlayAround("Just talk.</think>", kRequired, "get_weather\">\n" + city_);
  const json::object body = Answer(kChatPath, Ask(R"(,"tool_choice":"required")"));
  EXPECT_EQ(FirstChoice(body).at("finish_reason").as_string(), "tool_calls");
  EXPECT_EQ(Message(body).at("reasoning_content").as_string(), "Just talk.");
  EXPECT_TRUE(Message(body).at("content").is_null());
  EXPECT_EQ(Arguments(Message(body).at("tool_calls").at(0)), json::parse(R"({"city":"Rome"})"));
  EXPECT_GE(body.at("usage").at("completion_tokens").as_int64(), Tokens(kRequired)) << "forced tokens count";
}

TEST_F(ForcedCallTest, ANamedCallComesFirstInChatMode) {
  PlayAround("", kNamed, city_);
  const json::object body =
      Answer(kChatPath, Ask(R"(,"tool_choice":{"type":"function","function":{"name":"get_weather"}},
                               "reasoning_effort":"none")"));
  EXPECT_EQ(Message(body).at("tool_calls").at(0).at("function").at("name").as_string(), "get_weather");
  EXPECT_EQ(Arguments(Message(body).at("tool_calls").at(0)), json::parse(R"({"city":"Rome"})"));
}

TEST_F(ForcedCallTest, APrefilledAnswerIsFollowedByTheCall) {
  PlayAround("", kNamed, city_);
  std::string ask = Ask(R"(,"tool_choice":{"type":"function","function":{"name":"get_weather"}})");
  const std::string user = R"({"role":"user","content":"Weather?"})";
  ask.replace(ask.find(user), user.size(), user + R"(,{"role":"assistant","content":"Sure","prefix":true})");
  const json::object body = Answer(kChatPath, ask);
  EXPECT_TRUE(Message(body).at("content").is_null()) << "only what is new comes back";
  EXPECT_EQ(Message(body).at("tool_calls").as_array().size(), 1u);
}

TEST_F(ForcedCallTest, TheLimitInsideTheReasoningLeavesNoCall) {
  PlayAround("I keep thinking about the weather", kRequired, "");
  const json::object body = Answer(kChatPath, Ask(R"(,"tool_choice":"required","max_tokens":3)"));
  EXPECT_EQ(FirstChoice(body).at("finish_reason").as_string(), "length");
  EXPECT_FALSE(Message(body).contains("tool_calls"));
}

TEST_F(ServerToolsTest, LogprobsAreOfVisibleTokensOnly) {
  Play("Ask.</think>Let me look." + Block(kParis));
  const json::object body = Answer(kChatPath, Ask(R"(,"logprobs":true)"));
  const json::object& logprobs = FirstChoice(body).at("logprobs").as_object();
  const auto text = [](const json::value& list) {
    std::string joined;
    for (const json::value& entry : list.as_array()) joined += entry.at("token").as_string();
    return joined;
  };
  EXPECT_EQ(text(logprobs.at("content")), "Let me look.\n\n") << "the last token holds more than the text";
  EXPECT_EQ(text(logprobs.at("reasoning_content")), "Ask.");
}

TEST_F(ServerToolsTest, TheRoleIsSentBeforeThePromptIsComputed) {
  Play("</think>Hi.");
  model().HoldSteps();
  SocketClient client(port());
  client.Send("POST", kChatPath, Ask(R"(,"stream":true,"n":2)"));
  ASSERT_TRUE(client.ReadUntil(R"("index":1,"delta":{"role":"assistant","content":""})"));
  EXPECT_TRUE(model().recorded_steps().empty());
  model().ReleaseSteps();
  EXPECT_TRUE(client.Read().complete);
}

TEST_F(ServerToolsTest, WhatEndsAnAnswerEarlyIsSaid) {
  ScriptedServerOptions options;
  options.service.default_max_tokens = 5;
  options.model.max_model_len = 2000;
  Play("</think>One two three four five six seven.", options);
  const auto reasons = [&](const std::string& fields) {
    const json::object body = Answer(kChatPath, Ask(fields));
    const json::object& choice = FirstChoice(body);
    return json::serialize(choice.at("finish_reason")) + json::serialize(choice.at("stop_reason"));
  };
  EXPECT_EQ(reasons(""), R"("length""output_cap")");
  EXPECT_EQ(reasons(R"(,"max_tokens":4)"), R"("length"null)");
  EXPECT_EQ(reasons(R"(,"max_tokens":5000,"ignore_eos":true)"), R"("length""context_full")");
  EXPECT_EQ(reasons(R"(,"stop":"two")"), R"("stop""two")");
  EXPECT_EQ(reasons(R"(,"max_tokens":50)"), R"("stop"null)");
}

TEST_F(ServerToolsTest, AnAnswerThatOnlyRepeatsItselfEnds) {
  ScriptedServerOptions options;
  options.engine.repetition_limit_tokens = engine::kMinRepetitionLimitTokens;
  options.model.max_model_len = 20'000;
  std::string loop;
  for (int i = 0; i < 2000; ++i) loop += " again and again,";
  Play("</think>" + loop, options);
  const json::object body = Answer(kChatPath, Ask(""));
  EXPECT_EQ(FirstChoice(body).at("finish_reason").as_string(), "length");
  EXPECT_EQ(FirstChoice(body).at("stop_reason").as_string(), "repetition");
  EXPECT_LT(body.at("usage").at("completion_tokens").as_int64(), 2 * engine::kMinRepetitionLimitTokens);
  EXPECT_THAT(AskOnce(port(), "GET", "/metrics").body, HasSubstr(R"(finished_reason="repetition"} 1)"));
}

TEST_F(ServerToolsTest, BiasesAndPenaltiesReachTheSampler) {
  ASSERT_NO_FATAL_FAILURE(Start());
  model().ComputeLogits(
      [](std::span<const TokenId>, std::span<float> logits) { std::ranges::fill(logits, 0.0f); });
  const TokenId a = server_->tokenizer().EncodeText("a").at(0);
  const std::string bias =
      R"({"prompt":"x","temperature":0,"max_tokens":3,"logit_bias":{")" + std::to_string(a) + R"(":1})";
  EXPECT_EQ(FirstChoice(Answer(kCompletionsPath, bias + "}")).at("text").as_string(), "aaa");
  const json::object once = Answer(kCompletionsPath, bias + R"(,"presence_penalty":2})");
  EXPECT_THAT(std::string(FirstChoice(once).at("text").as_string()), StartsWith("a"));
  EXPECT_NE(FirstChoice(once).at("text").as_string(), "aaa");
  const ClientResponse refused =
      AskOnce(port(), "POST", kCompletionsPath, R"({"prompt":"x","logit_bias":{"99999999":1}})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("logit_bias"));
}

}  // namespace
}  // namespace millrace::api
