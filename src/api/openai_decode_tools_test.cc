// Tools, calls, results and continuation in a chat/completions body.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "api/openai_decode.h"

namespace millrace::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = ToolChoice::Kind;

std::string Body(const std::string& fields,
                 const std::string& messages = R"([{"role":"user","content":"hi"}])") {
  return R"({"messages":)" + messages + fields + "}";
}

ChatCompletionRequest Decoded(const std::string& body, text::ChatModel model = text::ChatModel::kV41) {
  auto result = DecodeChatRequest(body, {}, model);
  if (const ApiError* const error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<ChatCompletionRequest>(std::move(result));
}

const char* const kWeather =
    R"({"type":"function","function":{"name":"get_weather","description":"Weather","parameters":
        {"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},
         "required":["city"]},"strict":true}})";
const char* const kSearch = R"({"type":"function","function":{"name":"web::search","parameters":{}}})";
const char* const kMail = R"({"type":"function","namespace":"mail","function":{"name":"send"}})";

std::string Tools(const std::string& list) {
  return R"(,"tools":[)" + list + "]";
}

TEST(OpenAiDecodeTools, ToolsReachPromptAndParser) {
  const ChatCompletionRequest request = Decoded(Body(Tools(kWeather)));
  ASSERT_EQ(request.chat.tools.size(), 1u);
  EXPECT_EQ(request.chat.tools[0].name, "get_weather");
  EXPECT_THAT(request.chat.tools[0].json_line, HasSubstr(R"("required": ["city"]}, "strict": true})"));
  ASSERT_TRUE(request.tools);
  const text::ToolSchema* const schema = request.tools->schemas()->Find("get_weather");
  ASSERT_NE(schema, nullptr);
  EXPECT_TRUE(schema->TakesString("city"));
  EXPECT_FALSE(schema->TakesString("days"));
  EXPECT_EQ(request.tool_choice.kind, Kind::kAuto);
  EXPECT_TRUE(request.parallel_tool_calls);
}

TEST(OpenAiDecodeTools, NoToolsAndAnEmptyListAreTheSame) {
  for (const char* fields : {"", R"(,"tools":[])", R"(,"tools":null,"tool_choice":"none")"}) {
    const ChatCompletionRequest request = Decoded(Body(fields));
    EXPECT_FALSE(request.tools) << fields;
    EXPECT_TRUE(request.chat.tools.empty());
  }
}

TEST(OpenAiDecodeTools, NamesComeBackAsTheClientDeclaredThem) {
  const ChatCompletionRequest request = Decoded(Body(Tools(std::string(kSearch) + "," + kMail)));
  EXPECT_THAT(request.tools->written_names(), ElementsAre("web::search", "mail::send"));
  EXPECT_EQ(request.tools->ClientName("web::search").name, "web::search");
  EXPECT_EQ(request.tools->ClientName("web::search").name_space, "");
  EXPECT_EQ(request.tools->ClientName("mail::send").name, "send");
  EXPECT_EQ(request.tools->ClientName("mail::send").name_space, "mail");
  EXPECT_EQ(request.tools->ClientName("not::declared").name, "declared");
  const ChatCompletionRequest v4 = Decoded(Body(Tools(kSearch)), text::ChatModel::kV4);
  EXPECT_EQ(v4.tools->ClientName("not::declared").name, "not::declared");
}

TEST(OpenAiDecodeTools, ChoicesAndParallelCalls) {
  const auto choice = [](const std::string& json) {
    return Decoded(Body(Tools(std::string(kWeather) + "," + kMail) + R"(,"tool_choice":)" + json))
        .tool_choice;
  };
  EXPECT_EQ(choice(R"("auto")").kind, Kind::kAuto);
  EXPECT_EQ(choice(R"("none")").kind, Kind::kNone);
  EXPECT_EQ(choice(R"("required")").kind, Kind::kRequired);
  const ToolChoice named = choice(R"({"type":"function","function":{"name":"get_weather"}})");
  EXPECT_EQ(named.kind, Kind::kNamed);
  EXPECT_EQ(named.name, "get_weather");
  EXPECT_EQ(choice(R"({"type":"function","function":{"name":"send","namespace":"mail"}})").name,
            "mail::send");
  EXPECT_FALSE(Decoded(Body(R"(,"parallel_tool_calls":false)")).parallel_tool_calls);
}

TEST(OpenAiDecodeTools, CallsAndResultsInTheHistory) {
  const ChatCompletionRequest request = Decoded(Body("", R"([
      {"role":"user","content":"a"},
      {"role":"assistant","content":null,"reasoning_details":[{"type":"reasoning.text","text":"x"},{"text":"y"}],
       "tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}},
                     {"id":"c2","function":{"name":"g","arguments":{"b":[1, 2]}}},
                     {"id":"c3","type":"function","function":{"name":"h","arguments":null,"namespace":"ns"}}]},
      {"role":"tool","tool_call_id":"c2","name":"g","content":[{"type":"text","text":"r"}]},
      {"role":"tool","content":"s"}])"));
  ASSERT_EQ(request.chat.messages.size(), 4u);
  const text::ChatMessage& called = request.chat.messages[1];
  EXPECT_EQ(called.content.Text(), "");
  EXPECT_EQ(called.reasoning, "xy");
  ASSERT_EQ(called.tool_calls.size(), 3u);
  EXPECT_EQ(called.tool_calls[0].id, "c1");
  EXPECT_EQ(called.tool_calls[0].arguments, R"({"a":1.0})");
  EXPECT_EQ(called.tool_calls[1].arguments, R"({"b": [1, 2]})");
  EXPECT_EQ(called.tool_calls[2].name, "ns::h");
  EXPECT_EQ(called.tool_calls[2].arguments, "");
  EXPECT_EQ(request.chat.messages[2].role, text::Role::kTool);
  EXPECT_EQ(request.chat.messages[2].tool_call_id, "c2");
  EXPECT_EQ(request.chat.messages[2].content.Text(), "r");
  EXPECT_EQ(request.chat.messages[3].tool_call_id, "");
}

TEST(OpenAiDecodeTools, AFinalMessageIsContinuedUnderEitherName) {
  const char* const open = R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])";
  const char* const prefix =
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","prefix":true}])";
  EXPECT_FALSE(Decoded(Body("", open)).chat.options.continue_final_message);
  EXPECT_TRUE(Decoded(Body("", prefix)).chat.options.continue_final_message);
  EXPECT_TRUE(Decoded(Body(R"(,"continue_final_message":true,"add_generation_prompt":false)", open))
                  .chat.options.continue_final_message);
}

struct Refusal {
  std::string body;
  ApiErrorKind kind;
  const char* param;
  const char* says;
};

TEST(OpenAiDecodeTools, RefusesAndNamesTheField) {
  using K = ApiErrorKind;
  const std::string weather = Tools(kWeather);
  const auto calls = [](const std::string& list) {
    return Body("", R"([{"role":"assistant","tool_calls":[)" + list + "]}]");
  };
  const Refusal cases[] = {
      {Body(R"(,"tools":{})"), K::kInvalidType, "tools", "an array"},
      {Body(Tools("5")), K::kInvalidType, "tools[0]", "an object"},
      {Body(Tools(R"({"type":"web_search"})")), K::kUnsupportedField, "tools[0].type", "\"web_search\""},
      {Body(Tools(R"({"type":"function"})")), K::kMissingField, "tools[0].function", "required"},
      {Body(Tools(R"({"type":"function","function":{}})")), K::kInvalidValue, "tools[0].function",
       "\"name\""},
      {Body(Tools(R"({"type":"function","function":{"name":"a\"b"}})")), K::kInvalidValue,
       "tools[0].function", "quotes"},
      {Body(Tools(std::string(kWeather) + "," + kWeather)), K::kInvalidValue, "tools[1].function",
       "a second tool of the name \"get_weather\""},
      {Body(weather + R"(,"tool_choice":"any")"), K::kInvalidValue, "tool_choice", "\"any\". Expected auto"},
      {Body(weather + R"(,"tool_choice":5)"), K::kInvalidType, "tool_choice", "5. Expected auto"},
      {Body(weather + R"(,"tool_choice":{"type":"allowed_tools"})"), K::kInvalidValue, "tool_choice",
       "an object. Expected auto"},
      {Body(weather + R"(,"tool_choice":{"type":"function","function":{"name":"other"}})"), K::kInvalidValue,
       "tool_choice", "\"other\", which is not declared"},
      {Body(R"(,"tool_choice":"required")"), K::kInvalidValue, "tool_choice", "no tools are declared"},
      {Body(R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"), K::kInvalidValue, "tool_choice",
       "no tools are declared"},
      {Body(weather + R"(,"parallel_tool_calls":"no")"), K::kInvalidType, "parallel_tool_calls",
       "true or false"},
      {calls("5"), K::kInvalidType, "messages[0].tool_calls[0]", "an object"},
      {calls("{}"), K::kMissingField, "messages[0].tool_calls[0].function", "required"},
      {calls(R"({"type":"custom"})"), K::kInvalidValue, "messages[0].tool_calls[0].type", "function"},
      {calls(R"({"function":{}})"), K::kMissingField, "messages[0].tool_calls[0].function.name", "required"},
      {calls(R"({"function":{"name":"f","arguments":[]}})"), K::kInvalidType,
       "messages[0].tool_calls[0].function.arguments", "a string of JSON"},
      {calls(R"({"function":{"name":"a::b::c","namespace":"n"}})"), K::kInvalidValue,
       "messages[0].tool_calls[0].function.name", "::"},
      {Body("", R"([{"role":"user","content":"a","prefix":true}])"), K::kInvalidValue, "messages[0].prefix",
       "the assistant's"},
      {Body("", R"([{"role":"assistant","content":"a","prefix":true},{"role":"user","content":"b"}])"),
       K::kInvalidValue, "messages[0].prefix", "the last"},
      {Body(R"(,"continue_final_message":true)"), K::kInvalidValue, "continue_final_message",
       "the assistant's"},
      {Body(R"(,"add_generation_prompt":false)"), K::kUnsupportedField, "add_generation_prompt",
       "continue_final_message"},
      {Body(R"(,"continue_final_message":true)",
            R"([{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}])"),
       K::kInvalidValue, "continue_final_message", "without tool calls"},
  };
  for (const Refusal& c : cases) {
    const auto result = DecodeChatRequest(c.body);
    const ApiError* const error = std::get_if<ApiError>(&result);
    ASSERT_NE(error, nullptr) << c.body;
    EXPECT_EQ(error->kind, c.kind) << c.body << ": " << error->message;
    EXPECT_EQ(error->param, c.param) << error->message;
    EXPECT_THAT(error->message, HasSubstr(c.says));
    EXPECT_EQ(error->status(), 400);
  }
}

}  // namespace
}  // namespace millrace::api
