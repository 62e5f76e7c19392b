#include "api/anthropic_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "api/anthropic_stream_testing.h"

namespace millrace::api {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = AnswerEnd::Kind;

constexpr const char* kSignature = "signed";
constexpr TokenUsage kUsage = {
    .prompt_tokens = 100, .cached_tokens = 64, .completion_tokens = 20, .reasoning_tokens = 7};

AnthropicHead Head(bool thinking = true, bool starts_in_reasoning = true) {
  return {.id = "msg_1",
          .model = "m",
          .request_id = "r1",
          .signature = kSignature,
          .thinking = thinking,
          .starts_in_reasoning = starts_in_reasoning};
}

TextDelta Reasoning(const char* text) {
  TextDelta delta;
  delta.reasoning = text;
  return delta;
}

TextDelta Content(const char* text) {
  TextDelta delta;
  delta.content = text;
  return delta;
}

TextDelta Call(CallDelta call) {
  TextDelta delta;
  delta.calls.push_back(std::move(call));
  return delta;
}

TextDelta CallStart(size_t index, const char* id, text::ToolName tool) {
  CallDelta call;
  call.index = index;
  call.id = id;
  call.tool = std::move(tool);
  return Call(std::move(call));
}

TextDelta CallPiece(size_t index, const char* arguments, bool complete = false) {
  CallDelta call;
  call.index = index;
  call.arguments = arguments;
  call.complete = complete;
  return Call(std::move(call));
}

// The stream of these deltas, each preceded by as many fillers as it says.
AnthropicStreamReader Streamed(const AnthropicHead& head,
                               const std::vector<std::pair<int, TextDelta>>& deltas, AnswerEnd end = {}) {
  const auto format = MakeAnthropicFormat(head);
  std::string stream = format->StreamBegin(100);
  for (const auto& [fillers, delta] : deltas) {
    for (int i = 0; i < fillers; ++i) stream += format->Filler();
    stream += format->Delta(0, delta);
  }
  stream += format->ChoiceEnd(0, {}, end);
  stream += format->StreamEnd(kUsage);
  AnthropicStreamReader reader(stream);
  EXPECT_TRUE(reader.complete());
  return reader;
}

const json::array& BlocksOf(const AnthropicStreamReader& stream) {
  return stream.message().at("content").as_array();
}

TEST(AnthropicFormat, AStreamsEventsComeInTheOrderOfTheApi) {
  const AnthropicStreamReader stream = Streamed(Head(),
                                                {{0, Reasoning("a")},
                                                 {0, Reasoning("b")},
                                                 {0, Content("c")},
                                                 {0, CallStart(0, "0123", {.name_space = "", .name = "f"})},
                                                 {0, CallPiece(0, "{\"x\": ")},
                                                 {0, CallPiece(0, "1}", true)},
                                                 {0, CallStart(1, "4567", {.name_space = "ns", .name = "g"})},
                                                 {0, CallPiece(1, "{}", true)}},
                                                {Kind::kToolCalls, ""});
  EXPECT_THAT(stream.types(),
              ElementsAre("message_start", "content_block_start", "thinking_delta", "thinking_delta",
                          "signature_delta", "content_block_stop", "content_block_start", "text_delta",
                          "content_block_stop", "content_block_start", "input_json_delta", "input_json_delta",
                          "content_block_stop", "content_block_start", "input_json_delta",
                          "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(BlocksOf(stream), json::parse(R"([
      {"type":"thinking","thinking":"ab","signature":"signed"},
      {"type":"text","text":"c","citations":null},
      {"type":"tool_use","id":"toolu_0123","name":"f","caller":{"type":"direct"},"input":{"x":1}},
      {"type":"tool_use","id":"toolu_4567","name":"ns::g","caller":{"type":"direct"},"input":{}}])"));
}

TEST(AnthropicFormat, AMessageHasEveryFieldOfTheApi) {
  FinishedChoice choice;
  choice.reasoning = "ab";
  choice.content = "c";
  choice.calls.push_back({"0123", {.name_space = "", .name = "f"}, "f", R"({"n": 12345678901234567890123})"});
  choice.end = {Kind::kToolCalls, ""};
  const std::string text = MakeAnthropicFormat(Head())->Whole({&choice, 1}, kUsage);
  EXPECT_THAT(text, HasSubstr(R"("input":{"n": 12345678901234567890123})")) << "digits are kept";
  const json::object message = json::parse(text).as_object();
  EXPECT_EQ(message.at("usage"), json::parse(R"({"input_tokens":36,"cache_creation_input_tokens":0,
      "cache_read_input_tokens":64,"output_tokens":20,"output_tokens_details":{"thinking_tokens":7},
      "server_tool_use":null,"cache_creation":null,"inference_geo":null,"service_tier":"standard",
      "speed":null})"));
  for (const char* const key : {"container", "diagnostics", "stop_details", "stop_sequence"})
    EXPECT_TRUE(message.at(key).is_null()) << key;
  EXPECT_EQ(message.at("id"), "msg_1");
  EXPECT_EQ(message.at("type"), "message");
  EXPECT_EQ(message.at("role"), "assistant");
  EXPECT_EQ(message.at("model"), "m");
  EXPECT_EQ(message.at("stop_reason"), "tool_use");
  ASSERT_EQ(message.at("content").as_array().size(), 3u);
  EXPECT_EQ(message.at("content").as_array()[0].at("signature"), kSignature);
}

TEST(AnthropicFormat, TheStartOfAStreamCountsTheWholePromptAndItsEndWhatWasComputed) {
  const std::string begin = MakeAnthropicFormat(Head())->StreamBegin(100);
  EXPECT_THAT(begin, HasSubstr(R"("input_tokens":100,)"));
  const AnthropicStreamReader stream = Streamed(Head(), {{0, Content("c")}});
  EXPECT_EQ(stream.message().at("usage").at("input_tokens").as_int64(), 36);
  EXPECT_EQ(stream.message().at("usage").at("cache_read_input_tokens").as_int64(), 64);
  EXPECT_EQ(stream.message().at("usage").at("output_tokens").as_int64(), 20);
}

TEST(AnthropicFormat, EachEndHasTheApisWordAndOurOwnWhereThatSaysTooLittle) {
  struct Case {
    AnswerEnd end;
    const char* stop_reason;
    const char* stop_sequence;  // nullptr: null
    const char* our_reason;     // nullptr: absent
  };
  for (const Case& c : std::vector<Case>{
           {{Kind::kStop, ""}, "end_turn", nullptr, nullptr},
           {{Kind::kStopString, "END"}, "stop_sequence", "END", nullptr},
           {{Kind::kLength, ""}, "max_tokens", nullptr, nullptr},
           {{Kind::kOutputCap, ""}, "max_tokens", nullptr, nullptr},
           {{Kind::kContextFull, ""}, "max_tokens", nullptr, "context_full"},
           {{Kind::kToolCalls, ""}, "tool_use", nullptr, nullptr},
           {{Kind::kRepetition, ""}, "max_tokens", nullptr, "repetition"},
       }) {
    FinishedChoice choice;
    choice.end = c.end;
    const json::object whole =
        json::parse(MakeAnthropicFormat(Head())->Whole({&choice, 1}, kUsage)).as_object();
    for (const json::object& message : {whole, Streamed(Head(), {}, c.end).message()}) {
      EXPECT_EQ(message.at("stop_reason"), c.stop_reason);
      EXPECT_EQ(message.at("stop_sequence"),
                c.stop_sequence == nullptr ? json::value() : json::value(c.stop_sequence));
      const json::value* const ours = message.if_contains("millrace_stop_reason");
      ASSERT_EQ(ours != nullptr, c.our_reason != nullptr) << c.stop_reason;
      if (ours != nullptr) {
        EXPECT_EQ(*ours, c.our_reason);
      }
      EXPECT_TRUE(message.at("content").as_array().empty());
    }
  }
}

TEST(AnthropicFormat, SwitchedOffThinkingIsNotShownEvenIfTheModelThinks) {
  const AnthropicHead off = Head(/*thinking=*/false, /*starts_in_reasoning=*/false);
  const AnthropicStreamReader stream = Streamed(off, {{20, Reasoning("a")}, {0, Content("b")}});
  EXPECT_EQ(BlocksOf(stream), json::parse(R"([{"type":"text","text":"b","citations":null}])"));
  FinishedChoice choice;
  choice.reasoning = "a";
  choice.content = "b";
  EXPECT_EQ(json::parse(MakeAnthropicFormat(off)->Whole({&choice, 1}, kUsage)).at("content"),
            BlocksOf(stream));
}

TEST(AnthropicFormat, ALongSilenceOpensTheFirstBlockSoThatClientsKeepWaiting) {
  const AnthropicStreamReader thinking = Streamed(Head(), {{8, Reasoning("a")}});
  EXPECT_THAT(thinking.types(),
              ElementsAre("message_start", "ping", "ping", "ping", "ping", "ping", "ping",
                          "content_block_start", "thinking_delta", "thinking_delta", "thinking_delta",
                          "signature_delta", "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(BlocksOf(thinking), json::parse(R"([{"type":"thinking","thinking":"a","signature":"signed"}])"));
  const AnthropicStreamReader text = Streamed(Head(false, false), {{8, Content("a")}});
  EXPECT_EQ(BlocksOf(text), json::parse(R"([{"type":"text","text":"a","citations":null}])"));
  // A prefilled answer begins with its text although the model may think.
  EXPECT_EQ(BlocksOf(Streamed(Head(true, false), {{8, Content("a")}})), BlocksOf(text));
}

// Whatever an early block promised, the order holds: Streamed checks it.
TEST(AnthropicFormat, AnAnswerThatBeginsOtherwiseLeavesTheEarlyBlockEmpty) {
  const auto types = [](const AnthropicStreamReader& stream) {
    std::vector<std::string> list;
    for (const json::value& block : BlocksOf(stream)) {
      const json::value* const text = block.as_object().if_contains("text");
      const json::value* const thinking = block.as_object().if_contains("thinking");
      const bool empty = (text != nullptr && text->as_string().empty()) ||
                         (thinking != nullptr && thinking->as_string().empty());
      list.push_back(std::string(block.at("type").as_string()) + (empty ? " empty" : ""));
    }
    return list;
  };
  const TextDelta call = CallStart(0, "01", {.name_space = "", .name = "f"});
  EXPECT_THAT(types(Streamed(Head(), {{9, Content("a")}})), ElementsAre("thinking empty", "text"));
  EXPECT_THAT(types(Streamed(Head(), {{9, call}})), ElementsAre("thinking empty", "tool_use"));
  EXPECT_THAT(types(Streamed(Head(), {{9, TextDelta()}})), ElementsAre("thinking empty"));
  EXPECT_THAT(types(Streamed(Head(false, false), {{9, call}})), ElementsAre("text empty", "tool_use"));
  EXPECT_THAT(types(Streamed(Head(true, false), {{9, Reasoning("a")}, {0, Content("b")}})),
              ElementsAre("text empty", "thinking", "text"));
  EXPECT_THAT(types(Streamed(Head(false, false), {{9, TextDelta()}})), ElementsAre("text empty"));
}

TEST(AnthropicFormat, ASilenceLaterOnGoesToTheOpenBlockOrIsAPing) {
  const AnthropicStreamReader stream =
      Streamed(Head(), {{0, Reasoning("a")},
                        {1, Content("b")},
                        {1, CallStart(0, "01", {.name_space = "", .name = "f"})},
                        {1, CallPiece(0, "{}", true)},
                        {20, TextDelta()}});
  std::vector<std::string> expected = {"message_start",       "content_block_start", "thinking_delta",
                                       "thinking_delta",      "signature_delta",     "content_block_stop",
                                       "content_block_start", "text_delta",          "text_delta",
                                       "content_block_stop",  "content_block_start", "input_json_delta",
                                       "input_json_delta",    "content_block_stop"};
  expected.insert(expected.end(), 20, "ping");
  expected.insert(expected.end(), {"message_delta", "message_stop"});
  EXPECT_EQ(stream.types(), expected);
}

TEST(AnthropicFormat, AnErrorInMidStreamIsAnEventOfItsOwn) {
  const auto format = MakeAnthropicFormat(Head());
  std::string stream = format->StreamBegin(100);
  stream += format->Delta(0, Content("a"));
  stream += format->StreamError({ApiErrorKind::kInternal, "it broke", ""});
  const AnthropicStreamReader reader(stream);
  EXPECT_FALSE(reader.complete());
  ASSERT_TRUE(reader.error());
  EXPECT_EQ(
      *reader.error(),
      json::parse(R"({"type":"error","error":{"type":"api_error","message":"it broke"},"request_id":"r1"})"));
}

}  // namespace
}  // namespace millrace::api
