#include "api/anthropic_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace millrace::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kUser = R"([{"role":"user","content":"hi"}])";
constexpr const char* kWeather =
    R"([{"name":"get_weather","description":"Weather of a city","input_schema":{"type":"object","properties":)"
    R"({"city":{"type":"string"}},"required":["city"]}}])";

std::variant<ChatCompletionRequest, ApiError> Decode(
    const std::string& body, AnthropicEndpoint endpoint = AnthropicEndpoint::kMessages,
    const ChatDefaults& defaults = {}, text::ChatModel model = text::ChatModel::kV41) {
  return DecodeAnthropicRequest(body, endpoint, defaults, model);
}

ChatCompletionRequest Request(const std::string& body) {
  auto result = Decode(body);
  if (const ApiError* const error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<ChatCompletionRequest>(std::move(result));
}

// A request of one user message with more fields behind it.
ChatCompletionRequest With(const std::string& fields) {
  return Request(std::string(R"({"max_tokens":9,"messages":)") + kUser + fields + "}");
}

std::vector<text::ChatMessage> Messages(const std::string& messages) {
  return Request(R"({"max_tokens":9,"messages":)" + messages + "}").chat.messages;
}

// "user: text", "tool a: text", "assistant [reasoning]: text <name id arguments>"; parts joined by " | ".
std::string Shown(const text::ChatMessage& message) {
  const char* const roles[] = {"system", "user", "assistant", "tool", "latest_reminder", "developer"};
  std::string shown = roles[static_cast<size_t>(message.role)];
  if (!message.tool_call_id.empty()) shown += " " + message.tool_call_id;
  if (!message.reasoning.empty()) shown += " [" + message.reasoning + "]";
  shown += ": ";
  for (size_t p = 0; p < message.content.parts().size(); ++p)
    shown += (p == 0 ? "" : " | ") + std::get<std::string>(message.content.parts()[p]);
  for (const text::ToolCall& call : message.tool_calls)
    shown += " <" + call.name + " " + call.id + " " + call.arguments + ">";
  return shown;
}

std::vector<std::string> ShownAll(const std::vector<text::ChatMessage>& messages) {
  std::vector<std::string> shown;
  for (const text::ChatMessage& message : messages) shown.push_back(Shown(message));
  return shown;
}

TEST(AnthropicDecode, AMinimalRequestGetsTheDefaultsOfTheApi) {
  const ChatCompletionRequest request = With("");
  EXPECT_THAT(ShownAll(request.chat.messages), ElementsAre("user: hi"));
  EXPECT_TRUE(request.chat.options.thinking);
  EXPECT_EQ(request.chat.options.reasoning_effort, std::nullopt);
  EXPECT_FALSE(request.chat.options.continue_final_message);
  EXPECT_EQ(request.tools, nullptr);
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::kAuto);
  EXPECT_TRUE(request.parallel_tool_calls);
  EXPECT_EQ(request.output.max_tokens, 9);
  EXPECT_EQ(request.output.temperature, 1.0f);
  EXPECT_EQ(request.output.top_p, 1.0f);
  EXPECT_EQ(request.output.top_k, 0);
  EXPECT_EQ(request.output.n, 1);
  EXPECT_FALSE(request.output.stream);
}

TEST(AnthropicDecode, ReadsEveryOutputFieldAndIgnoresWhatOnlyAnthropicsServersKnow) {
  const OutputOptions output =
      With(R"(,"model":"m","temperature":0.5,"top_p":0.25,"top_k":40,"stop_sequences":["a","b"],"stream":true,
             "metadata":{"user_id":"u"},"service_tier":"auto","container":null,"context_management":{"edits":[]},
             "cache_control":{"type":"ephemeral"},"speed":"fast","inference_geo":"eu","mcp_servers":[],
             "n":"no field of this API","stop":7,"unheard_of":{"x":[1]})")
          .output;
  EXPECT_EQ(output.model, "m");
  EXPECT_EQ(output.temperature, 0.5f);
  EXPECT_EQ(output.top_p, 0.25f);
  EXPECT_EQ(output.top_k, 40);
  EXPECT_THAT(output.stop, ElementsAre("a", "b"));
  EXPECT_TRUE(output.stream);
}

TEST(AnthropicDecode, ClaudeCodesMarkOfALongContextIsNoPartOfTheName) {
  EXPECT_EQ(With(R"(,"model":"deepseek-flash[1m]")").output.model, "deepseek-flash");
}

TEST(AnthropicDecode, CountingNeedsNoLimit) {
  const std::string body = std::string(R"({"messages":)") + kUser + "}";
  EXPECT_TRUE(std::holds_alternative<ChatCompletionRequest>(Decode(body, AnthropicEndpoint::kCountTokens)));
  EXPECT_EQ(std::get<ApiError>(Decode(body)).param, "max_tokens");
}

TEST(AnthropicDecode, SystemIsTheMessageInFrontWithoutTheBillingHeader) {
  EXPECT_THAT(ShownAll(With(R"(,"system":"Be kind.")").chat.messages),
              ElementsAre("system: Be kind.", "user: hi"));
  EXPECT_THAT(ShownAll(With(R"(,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2;"},
                                {"type":"text","text":"A","cache_control":{"type":"ephemeral"}},
                                {"type":"text","text":"B"}])")
                           .chat.messages),
              ElementsAre("system: A | B", "user: hi"));
  for (const char* const nothing :
       {"null", "\"\"", "[]", R"([{"type":"text","text":""}])", R"("x-anthropic-billing-header: alone")"}) {
    EXPECT_THAT(ShownAll(With(std::string(R"(,"system":)") + nothing).chat.messages), ElementsAre("user: hi"))
        << nothing;
  }
}

TEST(AnthropicDecode, ASystemMessageInTheConversationStaysInPlace) {
  EXPECT_THAT(ShownAll(Messages(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},
                                    {"role":"system","content":[{"type":"text","text":"c"}]},
                                    {"role":"user","content":[{"type":"text","text":"d"}]},
                                    {"role":"system","content":"e"}])")),
              ElementsAre("user: a", "assistant: b", "system: c", "user: d", "system: e"));
}

TEST(AnthropicDecode, UserBlocksKeepTheirOrderAndResultsBecomeMessages) {
  EXPECT_THAT(ShownAll(Messages(R"([{"role":"user","content":[
          {"type":"tool_result","tool_use_id":"t1","content":"one","is_error":true},
          {"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"two"},{"type":"text","text":"2"}]},
          {"type":"text","text":"and"},{"type":"text","text":""},{"type":"text","text":"then"},
          {"type":"tool_result","tool_use_id":"t3"},
          {"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"page"}},
          {"type":"document","source":{"type":"content","content":[{"type":"text","text":"p1"},{"type":"text","text":"p2"}]}},
          {"type":"document","source":{"type":"content","content":"p3"}}]}])")),
              ElementsAre("tool t1: one", "tool t2: two | 2", "user: and | then",
                          "tool t3: ", "user: page | p1 | p2 | p3"));
  EXPECT_THAT(ShownAll(Messages(R"([{"role":"user","content":[]}])")), ElementsAre("user: "));
}

TEST(AnthropicDecode, AssistantBlocksBecomeOneMessageOfReasoningTextAndCalls) {
  const auto messages = Messages(R"([{"role":"user","content":"a"},{"role":"assistant","content":[
      {"type":"text","text":"I "},{"type":"thinking","thinking":"hm","signature":"s"},
      {"type":"redacted_thinking","data":"xyz"},
      {"type":"tool_use","id":"t1","name":"f","input":{"b":1.0,"a":12345678901234567890}},
      {"type":"text","text":"look."},{"type":"thinking","thinking":"!","signature":""},
      {"type":"tool_use","id":"t2","name":"g","input":{}},
      {"type":"tool_use","id":"t3","name":"h"}]},
      {"role":"user","content":"b"}])");
  EXPECT_THAT(
      ShownAll(messages),
      ElementsAre(
          "user: a",
          R"(assistant [hm!]: I look. <f t1 {"b": 1.0, "a": 12345678901234567890}> <g t2 {}> <h t3 >)",
          "user: b"));
}

TEST(AnthropicDecode, AFinalAssistantMessageIsContinued) {
  const auto continued = [](const std::string& last) {
    return Request(R"({"max_tokens":9,"messages":[{"role":"user","content":"a"},)" + last + "]}")
        .chat.options.continue_final_message;
  };
  EXPECT_TRUE(continued(R"({"role":"assistant","content":"{"})"));
  EXPECT_TRUE(
      continued(R"({"role":"assistant","content":[{"type":"thinking","thinking":"so","signature":"s"}]})"));
  EXPECT_FALSE(continued(R"({"role":"assistant","content":"b"},{"role":"user","content":"c"})"));
}

TEST(AnthropicDecode, ToolsAreDeclaredAsFunctions) {
  const ChatCompletionRequest request = With(std::string(R"(,"tools":)") + kWeather);
  ASSERT_EQ(request.chat.tools.size(), 1u);
  EXPECT_EQ(request.chat.tools[0].json_line,
            R"({"name": "get_weather", "description": "Weather of a city", "parameters": {"type": "object", )"
            R"("properties": {"city": {"type": "string"}}, "required": ["city"]}})");
  ASSERT_NE(request.tools, nullptr);
  EXPECT_THAT(request.tools->written_names(), ElementsAre("get_weather"));

  const ChatCompletionRequest bare = With(
      R"(,"tools":[{"type":"custom","name":"mcp::f","input_schema":{},"cache_control":{"type":"ephemeral"}},
              {"type":null,"name":"g","input_schema":{},"strict":true}])");
  EXPECT_EQ(bare.chat.tools[0].json_line, R"({"name": "mcp::f", "parameters": {}})");
  EXPECT_EQ(bare.tools->ClientName("mcp::f").name, "mcp::f") << "as the client declared it";
  EXPECT_EQ(With(R"(,"tools":[],"tool_choice":{"type":"auto"})").tools, nullptr);
}

TEST(AnthropicDecode, ToolChoicesOfTheApi) {
  const auto choose = [](const std::string& choice) {
    return With(std::string(R"(,"tools":)") + kWeather + R"(,"tool_choice":)" + choice);
  };
  using Kind = ToolChoice::Kind;
  EXPECT_EQ(choose(R"({"type":"auto"})").tool_choice.kind, Kind::kAuto);
  EXPECT_EQ(choose(R"({"type":"none"})").tool_choice.kind, Kind::kNone);
  EXPECT_EQ(choose(R"({"type":"any"})").tool_choice.kind, Kind::kRequired);
  const ChatCompletionRequest named = choose(R"({"type":"tool","name":"get_weather"})");
  EXPECT_EQ(named.tool_choice.kind, Kind::kNamed);
  EXPECT_EQ(named.tool_choice.name, "get_weather");
  EXPECT_TRUE(named.parallel_tool_calls);
  EXPECT_FALSE(choose(R"({"type":"auto","disable_parallel_tool_use":true})").parallel_tool_calls);
  EXPECT_FALSE(choose(R"({"type":"any","disable_parallel_tool_use":true})").parallel_tool_calls);
}

TEST(AnthropicDecode, WhetherAndHowHardToThink) {
  struct Case {
    const char* fields;
    bool thinking;
    std::optional<int> effort;
  };
  for (const Case& c : std::vector<Case>{
           {R"("thinking":{"type":"disabled"})", false, std::nullopt},
           {R"("thinking":{"type":"disabled"},"output_config":{"effort":"max"})", false, std::nullopt},
           {R"("thinking":{"type":"enabled","budget_tokens":32000})", true, std::nullopt},
           {R"("thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"high"})",
            true, 75},
           {R"("output_config":{"effort":"low"})", true, 50},
           {R"("output_config":{"effort":"medium"})", true, 75},
           {R"("output_config":{"effort":"xhigh"})", true, 75},
           {R"("output_config":{"effort":"max"})", true, 100},
           {R"("output_config":{"effort":33})", true, 33},
           {R"("output_config":{"effort":"none"})", false, std::nullopt},
           {R"("thinking":{"type":"enabled"},"output_config":{"effort":"none"})", true, std::nullopt},
           {R"("thinking":null,"output_config":{"effort":null})", true, std::nullopt},
       }) {
    const text::ChatOptions options = With(std::string(",") + c.fields).chat.options;
    EXPECT_EQ(options.thinking, c.thinking) << c.fields;
    EXPECT_EQ(options.reasoning_effort, c.effort) << c.fields;
  }
}

TEST(AnthropicDecode, TheServersDefaultsHoldWhereARequestSaysNothing) {
  const auto options = [](const std::string& fields) {
    const ChatDefaults defaults = {.thinking = false, .reasoning_effort = 20};
    return std::get<ChatCompletionRequest>(
               Decode(std::string(R"({"max_tokens":9,"messages":)") + kUser + fields + "}",
                      AnthropicEndpoint::kMessages, defaults))
        .chat.options;
  };
  EXPECT_FALSE(options("").thinking);
  EXPECT_TRUE(options(R"(,"thinking":{"type":"adaptive"})").thinking);
  EXPECT_EQ(options(R"(,"thinking":{"type":"adaptive"})").reasoning_effort, 20);
}

TEST(AnthropicDecode, EachRefusalNamesTheField) {
  struct Case {
    const char* body;  // "@" stands for a valid beginning
    ApiErrorKind kind;
    const char* param;
    const char* says;
  };
  using enum ApiErrorKind;
  for (
      const Case& c : std::vector<Case>{
          {"[]", kInvalidJson, "", "not an object"},
          {R"({"max_tokens":1})", kMissingField, "messages", "required"},
          {R"({"max_tokens":1,"messages":[]})", kInvalidValue, "messages", "at least one message"},
          {R"({"max_tokens":1,"messages":{}})", kInvalidType, "messages", "an array"},
          {R"({"max_tokens":1,"messages":["hi"]})", kInvalidType, "messages[0]", "role and content"},
          {R"({"max_tokens":1,"messages":[{"content":"a"}]})", kMissingField, "messages[0].role", "user"},
          {R"({"max_tokens":1,"messages":[{"role":"tool","content":"a"}]})", kInvalidValue,
           "messages[0].role", "user, assistant or system"},
          {R"({"max_tokens":1,"messages":[{"role":"user"}]})", kMissingField, "messages[0].content",
           "required"},
          {R"({"max_tokens":1,"messages":[{"role":"user","content":7}]})", kInvalidType,
           "messages[0].content", "content blocks"},
          {R"({"max_tokens":1,"messages":[{"role":"user","content":["a"]}]})", kInvalidType,
           "messages[0].content[0]", "content block"},
          {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"text":"a"}]}]})", kMissingField,
           "messages[0].content[0].type", "required"},
          {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text"}]}]})", kMissingField,
           "messages[0].content[0].text", "required"},
          {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"audio"}]}]})", kInvalidValue,
           "messages[0].content[0].type", "text, tool_result or document"},
          {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result"}]}]})",
           kMissingField, "messages[0].content[0].tool_use_id", "the call that this answers"},
          {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"a"},
               {"type":"image","source":{"type":"url","url":"https://a/b.png"}}]}]})",
           kUnsupportedField, "messages[0].content[1]", "is an image"},
          {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t",
               "content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}]}]}]})",
           kUnsupportedField, "messages[0].content[0].content[0]", "is an image"},
          {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":
               {"type":"base64","media_type":"application/pdf","data":"AA"}}]}]})",
           kUnsupportedField, "messages[0].content[0]", "reads no PDF"},
          {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":
               {"type":"content","content":[{"type":"image"}]}}]}]})",
           kUnsupportedField, "messages[0].content[0].source.content[0]", "is an image"},
          {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"document"}]}]})", kMissingField,
           "messages[0].content[0].source", "required"},
          {R"({"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"f"}]}]})",
           kMissingField, "messages[0].content[0].id", "required"},
          {R"({"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"server_tool_use"}]}]})",
           kInvalidValue, "messages[0].content[0].type", "thinking"},
          {R"({"max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":
               [{"type":"tool_use","id":"t","name":"f","input":{}}]}]})",
           kInvalidValue, "messages", "cannot be continued"},
          {R"(@,"system":[{"type":"image"}]})", kInvalidValue, "system[0].type", "text"},
          {R"(@,"system":7})", kInvalidType, "system", "a string or an array"},
          {R"(@,"max_tokens":0})", kInvalidValue, "max_tokens", "at least 1"},
          {R"(@,"max_tokens":"1"})", kInvalidType, "max_tokens", "an integer"},
          {R"(@,"temperature":3})", kInvalidValue, "temperature", "between 0 and 2"},
          {R"(@,"stop_sequences":[""]})", kInvalidValue, "stop_sequences[0]", "1 to"},
          {R"(@,"stream":1})", kInvalidType, "stream", "true or false"},
          {R"(@,"tools":{}})", kInvalidType, "tools", "an array"},
          {R"(@,"tools":[{"type":"web_search_20250305","name":"web_search"}]})", kUnsupportedField,
           "tools[0].type", "Anthropic's servers"},
          {R"(@,"tools":[{"input_schema":{}}]})", kMissingField, "tools[0].name", "required"},
          {R"(@,"tools":[{"name":"f"}]})", kMissingField, "tools[0].input_schema", "required"},
          {R"(@,"tools":[{"name":"f","input_schema":{}},{"name":"f","input_schema":{}}]})", kInvalidValue,
           "tools[1]", "second tool"},
          {R"(@,"tool_choice":{"type":"any"}})", kInvalidValue, "tool_choice", "no tools are declared"},
          {R"(@,"tool_choice":{"type":"sometimes"}})", kInvalidValue, "tool_choice.type", "auto, any, tool"},
          {R"(@,"tool_choice":{}})", kMissingField, "tool_choice.type", "required"},
          {R"(@,"tool_choice":{"type":"tool"}})", kMissingField, "tool_choice.name", "required"},
          {R"(@,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"g"}})",
           kInvalidValue, "tool_choice", "not declared"},
          {R"(@,"thinking":{"type":"sometimes"}})", kInvalidValue, "thinking.type", "adaptive"},
          {R"(@,"output_config":{"effort":"much"}})", kInvalidValue, "output_config.effort", "xhigh"},
          {R"(@,"output_config":{"format":{"type":"json_schema","schema":{}}}})", kUnsupportedField,
           "output_config.format", "not supported"},
          {R"(@,"output_format":{"type":"json_schema","schema":{}}})", kUnsupportedField, "output_format",
           "not supported"},
          {R"(@,"mcp_servers":[{"url":"https://a"}]})", kUnsupportedField, "mcp_servers", "tools"},
      }) {
    std::string body = c.body;
    if (body.front() == '@')
      body.replace(0, 1, R"({"max_tokens":1,"messages":[{"role":"user","content":"hi"}])");
    const auto result = Decode(body);
    const ApiError* const error = std::get_if<ApiError>(&result);
    ASSERT_NE(error, nullptr) << body;
    EXPECT_EQ(error->kind, c.kind) << body << "\n" << error->message;
    EXPECT_EQ(error->param, c.param) << error->message;
    EXPECT_EQ(error->status(), 400);
    EXPECT_THAT(error->message, HasSubstr(c.says)) << body;
    EXPECT_THAT(error->message, HasSubstr(c.param)) << body;
  }
}

TEST(AnthropicDecode, BrokenTextIsRepaired) {
  EXPECT_THAT(ShownAll(Messages(R"([{"role":"user","content":"a\ud800b"}])")),
              ElementsAre("user: a\xEF\xBF\xBD"
                          "b"));
}

}  // namespace
}  // namespace millrace::api
