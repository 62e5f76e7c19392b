// Anthropic's dialect over a whole server with a scripted model: what the model reads of a request, what the
// client gets, whole and streamed, and that both say the same.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "api/anthropic_stream_testing.h"
#include "api/server_answers_testing.h"

namespace millrace::api {
namespace {

namespace json = boost::json;
using ::testing::Combine;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ValuesIn;

constexpr const char* kMessages = "/v1/messages";
constexpr const char* kCount = "/v1/messages/count_tokens";
constexpr const char* kHello = R"({"messages":[{"role":"user","content":"Hello!"}],"max_tokens":500})";
constexpr const char* kTools =
    R"(,"tools":[{"name":"get_weather","description":"Weather","input_schema":{"type":"object","properties":)"
    R"({"city":{"type":"string"},"days":{"type":"integer"}}}}])";
constexpr const char* kCall =
    "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n"
    "<｜DSML｜ parameter name=\"city\" string=\"true\">Paris</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"days\" string=\"false\">3</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n</｜DSML｜ calls>";

std::string Hello(const std::string& fields) {
  return WithFields(kHello, fields);
}

class ServerMessagesTest : public ServerAnswersTest {
 protected:
  // The answer to every prompt.
  void Play(const std::string& answer, ScriptedServerOptions options = {}) {
    ASSERT_NO_FATAL_FAILURE(Start(std::move(options)));
    server_->PlayByDefault(answer);
  }

  // The whole answer; the streamed one must say the same.
  json::object Ask(const std::string& body) {
    json::object whole = Answer(kMessages, body);
    const ClientResponse response = AskOnce(port(), "POST", kMessages, WithFields(body, R"(,"stream":true)"));
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
    EXPECT_TRUE(response.complete);
    EXPECT_THAT(response.body, Not(HasSubstr("DSML")));
    const AnthropicStreamReader stream(response.body);
    EXPECT_TRUE(stream.complete());
    EXPECT_EQ(WithoutIds(stream.message()), WithoutIds(whole));
    return whole;
  }

  // The text of all that the model read of the last sequence.
  std::string LastRead() {
    const auto steps = model().recorded_steps();
    return server_->tokenizer().Decode(Read(steps.back().at(0).sequence), text::ControlTokens::kKeep);
  }
  // The prompt of a request: all that is read when one token is generated.
  std::string Prompt(const std::string& messages_and_fields) {
    Answer(kMessages, R"({"max_tokens":1,"messages":)" + messages_and_fields + "}");
    return LastRead();
  }

  int64_t Tokens(const std::string& text) const {
    return static_cast<int64_t>(server_->tokenizer().EncodePrompt(text).size());
  }
};

const json::array& Content(const json::object& message) {
  return message.at("content").as_array();
}

std::vector<std::string> BlockTypes(const json::object& message) {
  std::vector<std::string> types;
  for (const json::value& block : Content(message)) types.emplace_back(block.at("type").as_string());
  return types;
}

TEST_F(ServerMessagesTest, AnAnswerHasThinkingTextAndCalls) {
  const std::string answer = std::string("Ask.</think>Let me look.") + kCall;
  Play(answer);
  const json::object message = Ask(Hello(std::string(R"(,"model":"claude-opus-4-8")") + kTools));
  EXPECT_EQ(message.at("model"), "claude-opus-4-8") << "clients expect the name that they asked for";
  EXPECT_EQ(message.at("stop_reason"), "tool_use");
  EXPECT_THAT(BlockTypes(message), ElementsAre("thinking", "text", "tool_use"));
  EXPECT_EQ(Content(message)[0].at("thinking"), "Ask.");
  EXPECT_EQ(Content(message)[1].at("text"), "Let me look.");
  EXPECT_THAT(std::string(Content(message)[2].at("id").as_string()), StartsWith("toolu_"));
  EXPECT_EQ(Content(message)[2].at("id").as_string().size(), 30u);
  EXPECT_EQ(Content(message)[2].at("name"), "get_weather");
  EXPECT_EQ(Content(message)[2].at("input"), json::parse(R"({"city":"Paris","days":3})"));
  const json::object& usage = message.at("usage").as_object();
  EXPECT_EQ(usage.at("output_tokens").as_int64(), Tokens(answer) + 1);
  EXPECT_EQ(usage.at("output_tokens_details").at("thinking_tokens").as_int64(), Tokens("Ask."));
  EXPECT_EQ(usage.at("cache_read_input_tokens").as_int64(), 0);
}

// Thinking times tool_choice times history: the order of events holds (Ask checks it), a switch that is off
// means none, and a forced call is there.
struct Setting {
  const char* name;
  const char* fields;
};
void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.name;
}

constexpr Setting kThinkingSettings[] = {
    {"absent", ""},
    {"enabled", R"(,"thinking":{"type":"enabled","budget_tokens":1024})"},
    {"adaptive", R"(,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"})"},
    {"disabled", R"(,"thinking":{"type":"disabled"})"},
};
constexpr Setting kToolChoices[] = {
    {"auto", R"(,"tool_choice":{"type":"auto"})"},
    {"any", R"(,"tool_choice":{"type":"any","disable_parallel_tool_use":true})"},
    {"tool", R"(,"tool_choice":{"type":"tool","name":"get_weather"})"},
    {"none", R"(,"tool_choice":{"type":"none"})"},
};
constexpr Setting kHistories[] = {
    {"short", R"([{"role":"user","content":"Weather?"}])"},
    {"long", R"([{"role":"user","content":[{"type":"document","source":{"type":"text","data":"Facts."}},
                  {"type":"text","text":"Weather?"}]},
                 {"role":"assistant","content":[{"type":"redacted_thinking","data":"abc"},
                  {"type":"thinking","thinking":"Old.","signature":"x"},{"type":"text","text":"Well."},
                  {"type":"tool_use","id":"toolu_1","name":"get_weather","input":{"city":"Oslo"}}]},
                 {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"Snow"}]},
                 {"role":"system","content":"Be brief."}])"},
};

class MatrixTest : public ServerMessagesTest,
                   public ::testing::WithParamInterface<std::tuple<Setting, Setting, Setting>> {};

TEST_P(MatrixTest, TheEventsAreInOrderAndEachSwitchHolds) {
  const auto& [thinking, choice, history] = GetParam();
  const bool off = std::string_view(thinking.name) == "disabled";
  const bool no_calls = std::string_view(choice.name) == "none";
  Play((off ? "" : "Ask.</think>") + std::string(kCall));
  const json::object message = Ask(R"({"max_tokens":500,"messages":)" + std::string(history.fields) + kTools +
                                   thinking.fields + choice.fields + "}");
  std::vector<std::string> expected;
  if (!off) expected.emplace_back("thinking");
  if (!no_calls) expected.emplace_back("tool_use");
  EXPECT_EQ(BlockTypes(message), expected);
  EXPECT_EQ(message.at("stop_reason"), no_calls ? "end_turn" : "tool_use");
  if (!no_calls) {
    EXPECT_EQ(Content(message).back().at("input"), json::parse(R"({"city":"Paris","days":3})"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, MatrixTest,
                         Combine(ValuesIn(kThinkingSettings), ValuesIn(kToolChoices), ValuesIn(kHistories)));

TEST_F(ServerMessagesTest, AModelThatThinksAlthoughItIsSwitchedOffIsNotOverheard) {
  Play("<think>Secret.</think>Hello.");
  const json::object message = Ask(Hello(R"(,"thinking":{"type":"disabled"})"));
  EXPECT_THAT(BlockTypes(message), ElementsAre("text"));
  EXPECT_EQ(Content(message)[0].at("text"), "Hello.");
}

TEST_F(ServerMessagesTest, LengthAndStopSequencesEndAnAnswer) {
  Play("</think>Hello there.");
  const json::object cut = Ask(R"({"messages":[{"role":"user","content":"Hello!"}],"max_tokens":2})");
  EXPECT_EQ(cut.at("stop_reason"), "max_tokens");
  const json::object stopped = Ask(Hello(R"(,"stop_sequences":["x","there"])"));
  EXPECT_EQ(stopped.at("stop_reason"), "stop_sequence");
  EXPECT_EQ(stopped.at("stop_sequence"), "there");
  EXPECT_EQ(Content(stopped).back().at("text"), "Hello ");
  const json::object done = Ask(Hello(""));
  EXPECT_EQ(done.at("stop_reason"), "end_turn");
  EXPECT_TRUE(done.at("stop_sequence").is_null());
}

TEST_F(ServerMessagesTest, ACallThatIsCutOffIsOnlySeenInTheStream) {
  const std::string begun = std::string("</think>") + kCall;
  ASSERT_NO_FATAL_FAILURE(Play(begun));
  const std::string body = R"({"messages":[{"role":"user","content":"Hello!"}],"max_tokens":)" +
                           std::to_string(Tokens(begun) - 12) + kTools + "}";
  const json::object whole = Answer(kMessages, body);
  EXPECT_EQ(whole.at("stop_reason"), "max_tokens");
  EXPECT_TRUE(Content(whole).empty());
  const AnthropicStreamReader stream(
      AskOnce(port(), "POST", kMessages, WithFields(body, R"(,"stream":true)")).body);
  EXPECT_TRUE(stream.complete());
  EXPECT_EQ(stream.message().at("stop_reason"), "max_tokens");
  EXPECT_THAT(BlockTypes(stream.message()), ElementsAre("tool_use"));
}

TEST_F(ServerMessagesTest, TheModelReadsWhatTheBlocksSay) {
  Play("x");
  EXPECT_EQ(Prompt(R"([{"role":"user","content":"Hi"}],"thinking":{"type":"disabled"},
                      "system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"},
                                {"type":"text","text":"A"},{"type":"text","text":"B"}])"),
            "<｜begin▁of▁sentence｜><｜System｜>A\n\nB<｜User｜>Hi<｜Assistant｜></think>");
  EXPECT_EQ(
      Prompt(R"([{"role":"user","content":"Hi"},
                       {"role":"assistant","content":[{"type":"text","text":"Yes"},
                        {"type":"tool_use","id":"b","name":"get_weather","input":{"city":"Rome"}},
                        {"type":"tool_use","id":"a","name":"get_weather","input":{"city":"Oslo"}}]},
                       {"role":"user","content":[
                        {"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"cold"}]},
                        {"type":"tool_result","tool_use_id":"b","content":"warm"},
                        {"type":"text","text":"So?"}]},
                       {"role":"system","content":"Short."}],"thinking":{"type":"disabled"})"),
      "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>Yes\n\n<｜DSML｜ calls>\n"
      "<｜DSML｜ invoke name=\"get_weather\">\n"
      "<｜DSML｜ parameter name=\"city\" string=\"true\">Rome</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
      "<｜DSML｜ invoke name=\"get_weather\">\n"
      "<｜DSML｜ parameter name=\"city\" string=\"true\">Oslo</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
      "</｜DSML｜ calls><｜end▁of▁sentence｜>"
      "<｜User｜><tool_result>warm</tool_result>\n\n<tool_result>cold</tool_result>\n\nSo?"
      "<｜System｜>Short.<｜Assistant｜></think>");
}

TEST_F(ServerMessagesTest, APrefilledAnswerGoesOnWhereItEnds) {
  Play(" blue.");
  const char* const prefilled =
      R"([{"role":"user","content":"Sky?"},{"role":"assistant","content":"It is"}])";
  EXPECT_THAT(Prompt(prefilled), EndsWith("<｜User｜>Sky?<｜Assistant｜><think></think>It is"));
  EXPECT_THAT(Prompt(std::string(prefilled) + R"(,"thinking":{"type":"disabled"})"),
              EndsWith("<｜User｜>Sky?<｜Assistant｜></think>It is"));
  const json::object message = Ask(R"({"max_tokens":9,"messages":)" + std::string(prefilled) + "}");
  EXPECT_THAT(BlockTypes(message), ElementsAre("text"));
  EXPECT_EQ(Content(message)[0].at("text"), " blue.") << "only what is new";
}

TEST_F(ServerMessagesTest, CountingRendersTheSamePrompt) {
  Play("x");
  const std::string body =
      R"("messages":[{"role":"user","content":"Hello!"}],"system":"Be kind.")" + std::string(kTools) + "}";
  const json::object counted = Answer(kCount, "{" + body);
  EXPECT_EQ(counted.size(), 1u);
  EXPECT_EQ(counted.at("input_tokens"),
            Answer(kMessages, R"({"max_tokens":1,)" + body).at("usage").at("input_tokens"));
  EXPECT_EQ(AskOnce(port(), "POST", "/v1/messages/count_tokens?beta=true", "{" + body).status, 200);
  EXPECT_EQ(AskOnce(port(), "POST", kCount, R"({"model":"other",)" + body).status, 404);
}

TEST_F(ServerMessagesTest, APromptThatIsTooLongIsRefusedInTheWordsThatClientsLookFor) {
  ScriptedServerOptions options;
  options.model.max_model_len = 100;
  ASSERT_NO_FATAL_FAILURE(Play("</think>Hello.", options));
  std::string words;
  for (int i = 0; i < 200; ++i) words += " word";
  const std::string messages = R"("messages":[{"role":"user","content":")" + words + R"("}]})";
  const int64_t tokens = Answer(kCount, "{" + messages).at("input_tokens").as_int64();
  const ClientResponse refused = AskOnce(port(), "POST", kMessages, R"({"max_tokens":10,)" + messages);
  EXPECT_EQ(refused.status, 400);
  const json::object error = json::parse(refused.body).as_object();
  EXPECT_EQ(error.at("type"), "error");
  EXPECT_EQ(error.at("error").at("type"), "invalid_request_error");
  EXPECT_EQ(std::string(error.at("error").at("message").as_string()),
            "prompt is too long: " + std::to_string(tokens) + " tokens > 100 maximum");
  // A limit beyond the window is lowered without a word.
  EXPECT_EQ(Ask(Hello(R"(,"max_tokens":100000)")).at("stop_reason"), "end_turn");
}

TEST_F(ServerMessagesTest, ErrorsHaveAnthropicsShapeAndName) {
  Play("x");
  struct Case {
    const char* body;
    int status;
    const char* type;
    const char* says;
  };
  for (const Case& c : std::vector<Case>{
           {"{", 400, "invalid_request_error", "request body"},
           {R"({"messages":[{"role":"user","content":"a"}]})", 400, "invalid_request_error", "'max_tokens'"},
           {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image"}]}]})", 400,
            "invalid_request_error", "'messages[0].content[0]' is an image"},
           {R"({"max_tokens":1,"model":"gpt","messages":[{"role":"user","content":"a"}]})", 404,
            "not_found_error", "'gpt' does not exist"},
       }) {
    SocketClient client(port());
    client.Send("POST", "/v1/messages?beta=true", c.body,
                "X-Request-Id: r7\r\nanthropic-version: 2023-06-01\r\n");
    const ClientResponse response = client.Read();
    EXPECT_EQ(response.status, c.status) << c.body;
    EXPECT_EQ(response.headers.at("request-id"), "r7");
    const json::object body = json::parse(response.body).as_object();
    EXPECT_EQ(body.at("type"), "error");
    EXPECT_EQ(body.at("request_id"), "r7");
    EXPECT_EQ(body.at("error").at("type"), c.type);
    EXPECT_THAT(std::string(body.at("error").at("message").as_string()), HasSubstr(c.says));
  }
  EXPECT_THAT(AskOnce(port(), "GET", "/v1/messages/batches").body, HasSubstr("not_found_error"));
  EXPECT_EQ(AskOnce(port(), "GET", kMessages).status, 405);
}

TEST_F(ServerMessagesTest, AStreamBeginsAtOnceAndIsKeptOpenWhileThePromptIsComputed) {
  ScriptedServerOptions options;
  options.http.keep_alive_interval = std::chrono::milliseconds(20);
  Play("Ask.</think>Hello.", options);
  model().HoldSteps();
  SocketClient client(port());
  client.Send("POST", kMessages, Hello(R"(,"stream":true)"));
  ASSERT_TRUE(client.ReadUntil("event: message_start"));
  ASSERT_TRUE(client.ReadUntil("event: ping\ndata: {\"type\":\"ping\"}"));
  ASSERT_TRUE(client.ReadUntil(R"("delta":{"type":"thinking_delta","thinking":""})"));
  EXPECT_TRUE(model().recorded_steps().empty());
  model().ReleaseSteps();
  const ClientResponse response = client.Read();
  EXPECT_TRUE(response.headers.contains("request-id"));
  const AnthropicStreamReader stream(response.body);
  EXPECT_TRUE(stream.complete());
  EXPECT_THAT(BlockTypes(stream.message()), ElementsAre("thinking", "text"));
  EXPECT_EQ(Content(stream.message())[0].at("thinking"), "Ask.");
}

TEST_F(ServerMessagesTest, AFailureInMidStreamIsAnErrorEventAndACutStream) {
  Play("Ask.</think>Hello.");
  model().HoldSteps();
  SocketClient client(port());
  client.Send("POST", kMessages, Hello(R"(,"stream":true)"));
  ASSERT_TRUE(model().WaitUntilHeld());
  model().FailSteps(1);
  model().ReleaseSteps();
  const ClientResponse response = client.Read();
  EXPECT_FALSE(response.complete);
  const AnthropicStreamReader stream(response.body);
  EXPECT_FALSE(stream.complete());
  ASSERT_TRUE(stream.error());
  EXPECT_EQ(stream.error()->at("error").at("type"), "api_error");
}

// C55: a client of this dialect that drops the thinking, or sends it back, has the same prefix.
TEST_F(ServerMessagesTest, ALoopOfToolsExtendsItsOwnPrompt) {
  Play(std::string("Ask.</think>Let me look.") + kCall);
  const std::string body = R"({"max_tokens":500,"messages":[{"role":"user","content":"Hello!"})";
  for (const bool drop_thinking : {false, true}) {
    const json::object first = Answer(kMessages, body + "]" + kTools + "}");
    const std::vector<TokenId> before = Read(model().recorded_steps().back().at(0).sequence);
    json::array content = Content(first);
    if (drop_thinking) content.erase(content.begin());
    const std::string id(content.back().at("id").as_string());
    Answer(kMessages, body + R"(,{"role":"assistant","content":)" + json::serialize(content) +
                          R"(},{"role":"user","content":[{"type":"tool_result","tool_use_id":")" + id +
                          R"(","content":"Sun"}]}])" + kTools + "}");
    const std::vector<TokenId> after = Read(model().recorded_steps().back().at(0).sequence);
    ASSERT_GT(after.size(), before.size());
    EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin())) << drop_thinking;
  }
}

}  // namespace
}  // namespace millrace::api
