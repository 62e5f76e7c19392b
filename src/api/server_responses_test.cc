// POST /v1/responses over a whole server with a scripted model: the object, the order of the events, how
// answers end, what keeps a waiting client, and that its prompts are those of chat/completions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/server_answers_testing.h"

namespace millrace::api {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kPath = "/v1/responses";
constexpr const char* kTools = R"([{"type":"function","name":"get_weather","strict":null,"parameters":
    {"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}}}},
    {"type":"namespace","name":"mail","description":"Mail.","tools":[
      {"type":"function","name":"send","strict":null,"parameters":{"type":"object","properties":{}}}]},
    {"type":"custom","name":"apply_patch"}])";

std::string Ask(const std::string& fields) {
  return R"({"input":"Weather?","temperature":0,"model":"scripted","tools":)" + std::string(kTools) + fields +
         "}";
}

constexpr const char* kOpener = "\n\n<｜DSML｜ calls>\n";
constexpr const char* kCloser = "</｜DSML｜ calls>";
constexpr const char* kParis =
    "<｜DSML｜ invoke name=\"get_weather\">\n"
    "<｜DSML｜ parameter name=\"city\" string=\"true\">Paris</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"days\" string=\"false\">3</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n";
constexpr const char* kSend = "<｜DSML｜ invoke name=\"mail::send\">\n\n</｜DSML｜ invoke>\n";
constexpr const char* kPatch =
    "<｜DSML｜ invoke name=\"apply_patch\">\n"
    "<｜DSML｜ parameter name=\"input\" string=\"true\">*** Begin\n\"é\"\\n</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n";
constexpr const char* kPatchText = "*** Begin\n\"é\"\\n";

std::string Text(const json::value& value) {
  return std::string(value.as_string());
}

class ServerResponsesTest : public ServerAnswersTest {
 protected:
  void Play(const std::string& answer, ScriptedServerOptions options = {}) {
    ASSERT_NO_FATAL_FAILURE(Start(std::move(options)));
    server_->PlayByDefault(answer);
  }

  // The events of a stream: each with its type as the event's name and the next number; no [DONE].
  std::vector<json::object> Events(const std::string& body) {
    const ClientResponse response = AskOnce(port(), "POST", kPath, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
    EXPECT_TRUE(response.complete);
    return Parse(response.body);
  }

  static std::vector<json::object> Parse(const std::string& body) {
    std::vector<json::object> events;
    for (const std::string& data : EventData(body)) {
      events.push_back(json::parse(data).as_object());
      const std::string type = Text(events.back().at("type"));
      EXPECT_THAT(body, HasSubstr("event: " + type + "\ndata: " + data));
      EXPECT_EQ(events.back().at("sequence_number").as_int64(), static_cast<int64_t>(events.size() - 1));
    }
    return events;
  }
};

// Types of events, deltas of one item as one, without "response.".
std::vector<std::string> Types(const std::vector<json::object>& events) {
  constexpr std::string_view kPrefix = "response.";
  std::vector<std::string> types;
  for (const json::object& event : events) {
    std::string type = Text(event.at("type"));
    if (type.starts_with(kPrefix)) type.erase(0, kPrefix.size());
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  return types;
}

// What a client that only knows the increments makes of a stream's output.
json::array Accumulated(const std::vector<json::object>& events) {
  json::array output;
  const auto item_of = [&](const json::object& event) -> json::object& {
    json::object& item = output.at(static_cast<size_t>(event.at("output_index").as_int64())).as_object();
    EXPECT_EQ(item.at("id"), event.at("item_id"));
    return item;
  };
  const auto add = [](json::value& text, const json::value& delta) { text = Text(text) + Text(delta); };
  for (const json::object& event : events) {
    const std::string type = Text(event.at("type"));
    if (type == "response.output_item.added") {
      EXPECT_EQ(event.at("output_index").as_int64(), static_cast<int64_t>(output.size()));
      output.push_back(event.at("item"));
    } else if (type == "response.content_part.added") {
      item_of(event)["content"].as_array().push_back(event.at("part"));
    } else if (type == "response.output_text.delta" || type == "response.reasoning_text.delta") {
      add(item_of(event)["content"].as_array().at(0).as_object()["text"], event.at("delta"));
    } else if (type == "response.function_call_arguments.delta") {
      add(item_of(event)["arguments"], event.at("delta"));
    } else if (type == "response.custom_tool_call_input.delta") {
      add(item_of(event)["input"], event.at("delta"));
    } else if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(item_of(event).at("arguments"), event.at("arguments"));
      EXPECT_EQ(item_of(event).at("name"), event.at("name"));
    } else if (type == "response.custom_tool_call_input.done") {
      EXPECT_EQ(item_of(event).at("input"), event.at("input"));
    } else if (type == "response.output_text.done" || type == "response.reasoning_text.done") {
      EXPECT_EQ(item_of(event).at("content").as_array().at(0).at("text"), event.at("text"));
    }
  }
  return output;
}

// An item without what differs between two answers of the same text, and between its states.
json::value Comparable(json::object item) {
  for (const char* key : {"id", "call_id", "status", "encrypted_content"}) item.erase(key);
  return item;
}

void ExpectSameOutput(const json::value& a, const json::value& b) {
  ASSERT_EQ(a.as_array().size(), b.as_array().size());
  for (size_t i = 0; i < a.as_array().size(); ++i)
    EXPECT_EQ(Comparable(a.as_array()[i].as_object()), Comparable(b.as_array()[i].as_object()));
}

TEST_F(ServerResponsesTest, AResponseHasEveryFieldOfTheApi) {
  Play("They greet.</think>Hello!");
  const json::object response = Answer(kPath, R"({"input":"Hello!","temperature":0,"model":"scripted",
      "instructions":"Be kind.","metadata":{"a":"b"},"reasoning":{"effort":"high"},"max_output_tokens":50})");
  EXPECT_THAT(Text(response.at("id")), StartsWith("resp_"));
  EXPECT_EQ(response.at("object").as_string(), "response");
  EXPECT_TRUE(response.at("created_at").is_int64());
  EXPECT_TRUE(response.at("completed_at").is_int64());
  EXPECT_EQ(response.at("status").as_string(), "completed");
  EXPECT_EQ(response.at("model").as_string(), "scripted");
  EXPECT_EQ(response.at("instructions").as_string(), "Be kind.");
  EXPECT_EQ(response.at("metadata"), json::parse(R"({"a":"b"})"));
  EXPECT_EQ(response.at("reasoning"), json::parse(R"({"effort":"high"})"));
  EXPECT_EQ(response.at("max_output_tokens").as_int64(), 50);
  EXPECT_EQ(response.at("tool_choice").as_string(), "auto");
  EXPECT_EQ(response.at("tools"), json::array());
  for (const char* key : {"error", "incomplete_details", "previous_response_id"})
    EXPECT_TRUE(response.at(key).is_null()) << key;

  const json::array& output = response.at("output").as_array();
  ASSERT_EQ(output.size(), 2u);
  EXPECT_THAT(Text(output[0].at("id")), StartsWith("rs_"));
  EXPECT_THAT(Text(output[1].at("id")), StartsWith("msg_"));
  EXPECT_EQ(Comparable(output[0].as_object()), json::parse(R"({"type":"reasoning","summary":[],
      "content":[{"type":"reasoning_text","text":"They greet."}]})"));
  EXPECT_EQ(Comparable(output[1].as_object()), json::parse(R"({"type":"message","role":"assistant",
      "content":[{"type":"output_text","text":"Hello!","annotations":[],"logprobs":[]}]})"));
  EXPECT_EQ(output[1].at("status").as_string(), "completed");

  const auto tokens = [&](const char* text) {
    return static_cast<int64_t>(server_->tokenizer().EncodePrompt(text).size());
  };
  const json::object& usage = response.at("usage").as_object();
  const int64_t reasoning = tokens("They greet.");
  const int64_t answered = reasoning + 1 + tokens("Hello!") + 1;
  EXPECT_EQ(usage.at("output_tokens").as_int64(), answered);
  EXPECT_EQ(usage.at("output_tokens_details").at("reasoning_tokens").as_int64(), reasoning);
  EXPECT_EQ(usage.at("input_tokens_details").at("cached_tokens").as_int64(), 0);
  EXPECT_EQ(usage.at("total_tokens").as_int64(), usage.at("input_tokens").as_int64() + answered);
}

TEST_F(ServerResponsesTest, AStreamTellsTheSameInOrder) {
  Play(std::string("Look it up.</think>Let me see.") + kOpener + kParis + kSend + kPatch + kCloser);
  const std::vector<json::object> events = Events(Ask(R"(,"stream":true)"));
  EXPECT_THAT(
      Types(events),
      ElementsAre("created", "in_progress",  //
                  "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
                  "content_part.done", "output_item.done",  //
                  "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
                  "content_part.done", "output_item.done",  //
                  "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
                  "output_item.done",  //
                  "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
                  "output_item.done",  //
                  "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done",
                  "output_item.done",  //
                  "completed"));
  EXPECT_EQ(events[0].at("response").at("status").as_string(), "in_progress");
  EXPECT_EQ(events[0].at("response").at("output"), json::array());
  const json::value& response = events.back().at("response");
  EXPECT_EQ(response.at("status").as_string(), "completed");
  EXPECT_EQ(response.at("id"), events[0].at("response").at("id"));
  ExpectSameOutput(response.at("output"), Accumulated(events));

  const json::object whole = Answer(kPath, Ask(""));
  ExpectSameOutput(response.at("output"), whole.at("output"));
  EXPECT_EQ(response.at("usage"), whole.at("usage"));
  EXPECT_EQ(response.at("tools"), whole.at("tools"));
}

TEST_F(ServerResponsesTest, CallsComeBackAsTheirToolsWereDeclared) {
  Play(std::string("</think>") + kOpener + kParis + kSend + kPatch + kCloser);
  const json::object response = Answer(kPath, Ask(""));
  const json::array& output = response.at("output").as_array();
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(Comparable(output[0].as_object()), json::parse(R"({"type":"function_call","name":"get_weather",
      "arguments":"{\"city\": \"Paris\", \"days\": 3}"})"));
  EXPECT_THAT(Text(output[0].at("id")), StartsWith("fc_"));
  EXPECT_THAT(Text(output[0].at("call_id")), StartsWith("call_"));
  EXPECT_EQ(output[1].at("name").as_string(), "send");
  EXPECT_EQ(output[1].at("namespace").as_string(), "mail");
  EXPECT_EQ(output[2].at("type").as_string(), "custom_tool_call");
  EXPECT_THAT(Text(output[2].at("id")), StartsWith("ctc_"));
  EXPECT_EQ(Text(output[2].at("input")), kPatchText);
}

TEST_F(ServerResponsesTest, ACallIsNotDoneBeforeItIsComplete) {
  ScriptedServerOptions options;
  Play(std::string("</think>") + kOpener + kParis + kCloser, options);
  const auto tokens = [&](const std::string& text) { return server_->tokenizer().EncodePrompt(text).size(); };
  const size_t cut =
      tokens(std::string("</think>") + kOpener +
             "<｜DSML｜ invoke name=\"get_weather\">\n<｜DSML｜ parameter name=\"city\" string=\"true\">Pa");
  const std::string limit = R"(,"max_output_tokens":)" + std::to_string(cut);
  const std::vector<json::object> events = Events(Ask(R"(,"stream":true)" + limit));
  EXPECT_THAT(Types(events), ElementsAre("created", "in_progress", "output_item.added",
                                         "function_call_arguments.delta", "incomplete"));
  EXPECT_EQ(events.back().at("response").at("output"), json::array());
  EXPECT_EQ(Answer(kPath, Ask(limit)).at("output"), json::array());
}

struct EndCase {
  const char* name;
  const char* answer;
  const char* fields;
  const char* status;
  const char* details;
  const char* item_status;  // of the last item
};

class EndTest : public ServerResponsesTest, public ::testing::WithParamInterface<EndCase> {};

TEST_P(EndTest, SaysHowTheAnswerEnded) {
  ScriptedServerOptions options;
  options.service.default_max_tokens = 60;
  Play(GetParam().answer, options);
  const std::string fields = GetParam().fields;
  const json::object whole = Answer(kPath, Ask(fields));
  const std::vector<json::object> events = Events(Ask(fields + R"(,"stream":true)"));
  EXPECT_EQ(Text(events.back().at("type")), std::string("response.") + GetParam().status);
  for (const json::value* response : {&events.back().at("response")}) {
    EXPECT_EQ(response->at("status").as_string(), GetParam().status);
    EXPECT_EQ(response->at("incomplete_details"), json::parse(GetParam().details));
    EXPECT_EQ(response->at("output").as_array().back().at("status").as_string(), GetParam().item_status);
  }
  for (const char* key : {"status", "incomplete_details", "usage"})
    EXPECT_EQ(whole.at(key), events.back().at("response").at(key)) << key;
  ExpectSameOutput(whole.at("output"), events.back().at("response").at("output"));
  EXPECT_EQ(whole.at("output").as_array().back().at("status").as_string(), GetParam().item_status);
}

constexpr const char* kLong =
    "a b c d e f g h i j k l m n o p q r s t u v w x y z 1 2 3 4 5 6 7 8 9 0 "
    "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z";

INSTANTIATE_TEST_SUITE_P(
    , EndTest,
    ::testing::Values(
        EndCase{"Stop", "r</think>x", "", "completed", "null", "completed"},
        EndCase{"StopString", "r</think>xyz", R"(,"stop":"y")", "completed", "null", "completed"},
        EndCase{"LengthInTheAnswer", "r</think>one two three four five", R"(,"max_output_tokens":5)",
                "incomplete", R"({"reason":"max_output_tokens"})", "incomplete"},
        EndCase{"LengthInTheReasoning", "one two three four five", R"(,"max_output_tokens":3)", "incomplete",
                R"({"reason":"max_output_tokens"})", "incomplete"},
        EndCase{"OutputCap", kLong, "", "incomplete",
                R"({"reason":"max_output_tokens","stop_reason":"output_cap"})", "incomplete"}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST_F(ServerResponsesTest, AModelThatRepeatsItselfIsSaidToBe) {
  ScriptedServerOptions options;
  options.model.max_model_len = 1'000'000;
  options.service.default_max_tokens = 0;
  ASSERT_NO_FATAL_FAILURE(Start(options));
  const TokenId letter = server_->tokenizer().EncodeText("a").at(0);
  model().ComputeLogits([letter](std::span<const TokenId>, std::span<float> logits) {
    std::ranges::fill(logits, 0.0f);
    logits[static_cast<size_t>(letter)] = 100;
  });
  const json::object response = Answer(kPath, Ask(""));
  EXPECT_EQ(response.at("status").as_string(), "incomplete");
  EXPECT_EQ(response.at("incomplete_details"),
            json::parse(R"({"reason":"max_output_tokens","stop_reason":"repetition"})"));
}

TEST_F(ServerResponsesTest, LogprobsAccompanyTheText) {
  Play("r</think>one two");
  const std::string fields = R"(,"include":["message.output_text.logprobs"],"top_logprobs":2)";
  const json::object whole = Answer(kPath, Ask(fields));
  const json::value& part = whole.at("output").as_array().at(1).at("content").as_array().at(0);
  const json::array& logprobs = part.at("logprobs").as_array();
  std::string text;
  for (const json::value& entry : logprobs) {
    text += Text(entry.at("token"));
    EXPECT_EQ(entry.at("top_logprobs").as_array().size(), 2u);
    EXPECT_TRUE(entry.at("logprob").is_number());
  }
  EXPECT_EQ(text, "one two");
  json::array streamed;
  for (const json::object& event : Events(Ask(fields + R"(,"stream":true)"))) {
    if (Text(event.at("type")) != "response.output_text.delta") continue;
    for (const json::value& entry : event.at("logprobs").as_array()) streamed.push_back(entry);
  }
  EXPECT_EQ(streamed, logprobs);
}

TEST_F(ServerResponsesTest, AForcedCallIsMade) {
  Play("r</think>No call.");
  const json::object response = Answer(kPath, Ask(R"(,"tool_choice":{"type":"function","name":"get_weather"},
      "reasoning":{"effort":"none"},"max_output_tokens":60)"));
  EXPECT_EQ(response.at("tool_choice").at("name").as_string(), "get_weather");
  const std::vector<TokenId> read = Read(1);
  EXPECT_THAT(server_->tokenizer().Decode(read, text::ControlTokens::kKeep),
              HasSubstr(std::string(kOpener) + "<｜DSML｜ invoke name=\"get_weather\">\n"));
}

// What the conversation of a client looks like to the model when it sends everything back.
TEST_F(ServerResponsesTest, AReplayedConversationExtendsThePromptInEveryForm) {
  for (const bool sealed : {false, true}) {
    Play(std::string("Look it up.</think>Let me see.") + kOpener + kParis + kPatch + kCloser);
    const std::string include = sealed ? R"(,"store":false,"include":["reasoning.encrypted_content"])" : "";
    const json::object response = Answer(kPath, Ask(include));
    json::array input = {json::object{{"role", "user"}, {"content", "Weather?"}}};
    for (json::value item : response.at("output").as_array()) {
      if (item.at("type").as_string() == "reasoning") {
        EXPECT_EQ(item.at("encrypted_content").is_string(), sealed);
        if (sealed) item.as_object().erase("content");
      }
      input.push_back(item);
    }
    for (size_t c : {3u, 2u}) {  // results in another order
      input.push_back({{"type", c == 2 ? "function_call_output" : "custom_tool_call_output"},
                       {"call_id", input[c + 1].at("call_id")},
                       {"output", "ok"}});
    }
    json::object body = json::parse(Ask(include)).as_object();
    body["input"] = input;
    Answer(kPath, json::serialize(body));
    const std::vector<TokenId> first = Read(1), second = Read(2);
    ASSERT_GT(second.size(), first.size());
    EXPECT_TRUE(std::equal(first.begin(), first.end(), second.begin()))
        << server_->tokenizer().Decode(second, text::ControlTokens::kKeep);
  }
}

TEST_F(ServerResponsesTest, ReadsAConversationAsChatDoes) {
  Play("r</think>x");
  Answer(kPath, R"({"model":"scripted","temperature":0,"instructions":"sys","input":[
      {"type":"message","role":"user","content":[{"type":"input_text","text":"q"}]},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"why"}]},
      {"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[]}]},
      {"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{\"x\":1}"},
      {"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"o"}]},
      {"type":"message","role":"user","content":"go on"}],
      "tools":[{"type":"function","name":"f","description":"d","strict":true,"parameters":{"type":"object"}}]})");
  Answer(kChatPath,
         R"({"temperature":0,"messages":[{"role":"system","content":"sys"},{"role":"user","content":"q"},
      {"role":"assistant","content":"a","reasoning_content":"why",
       "tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"o"},{"role":"user","content":"go on"}],
      "tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}]})");
  ASSERT_FALSE(Read(1).empty());
  EXPECT_EQ(server_->tokenizer().Decode(Read(1), text::ControlTokens::kKeep),
            server_->tokenizer().Decode(Read(2), text::ControlTokens::kKeep));
}

TEST_F(ServerResponsesTest, WhatKeepsAClientWaitingIsAnEvent) {
  ScriptedServerOptions options;
  options.http.keep_alive_interval = std::chrono::milliseconds(20);
  Play("Yes.</think>Hello", options);
  model().HoldSteps();
  SocketClient client(port());
  client.Send("POST", kPath, Ask(R"(,"stream":true)"));
  ASSERT_TRUE(client.ReadUntil(R"("type":"response.in_progress","sequence_number":2)"));
  // Until the prompt is computed and the reasoning has begun.
  WaitUntil(
      [&] {
        model().AllowSteps(1);
        return server_->engine().stats().generation_tokens_total > 0;
      },
      "the first token");
  ASSERT_TRUE(client.ReadUntil(R"("content_index":0,"delta":"")"));
  model().ReleaseSteps();
  const ClientResponse response = client.Read();
  const std::vector<json::object> events = Parse(response.body);
  ExpectSameOutput(events.back().at("response").at("output"), Accumulated(events));
  EXPECT_EQ(Text(events.back().at("type")), "response.completed");
}

TEST_F(ServerResponsesTest, AFailureInMidStreamIsTheLastEvent) {
  Play("Yes.</think>Hello");
  model().HoldSteps();
  SocketClient client(port());
  client.Send("POST", kPath, Ask(R"(,"stream":true)"));
  ASSERT_TRUE(client.ReadUntil("response.in_progress"));
  model().FailSteps(1);
  model().ReleaseSteps();
  const std::vector<json::object> events = Parse(client.Read().body);
  EXPECT_EQ(Text(events.back().at("type")), "response.failed");
  const json::value& response = events.back().at("response");
  EXPECT_EQ(response.at("status").as_string(), "failed");
  EXPECT_EQ(response.at("error").at("code").as_string(), "server_error");
  EXPECT_THAT(Text(response.at("error").at("message")), HasSubstr("scripted failure"));
}

TEST_F(ServerResponsesTest, RefusalsAreErrorsOfTheApi) {
  Play("x");
  ClientResponse response = AskOnce(port(), "POST", kPath, R"({"input":[{"type":"compaction"}]})");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body).at("error").at("param").as_string(), "input[0].type");
  response = AskOnce(port(), "POST", kPath, R"({"input":"x","model":"gpt-9"})");
  EXPECT_EQ(response.status, 404);
  response = AskOnce(port(), "POST", kPath, R"({"input":")" + std::string(100'000, 'a') + "\"}");
  EXPECT_EQ(response.status, 400);
  const json::value error = json::parse(response.body).at("error");
  EXPECT_EQ(error.at("code").as_string(), "context_length_exceeded");
  EXPECT_EQ(error.at("param").as_string(), "input");
}

}  // namespace
}  // namespace millrace::api
