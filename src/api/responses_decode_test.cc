#include "api/responses_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/openai_decode.h"
#include "api/reasoning_seal.h"
#include "text/ordered_json.h"

namespace millrace::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

ResponsesRequest Decoded(const std::string& body) {
  std::variant<ResponsesRequest, ApiError> result = DecodeResponsesRequest(body);
  if (const ApiError* const error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<ResponsesRequest>(std::move(result));
}

ResponsesRequest WithFields(const std::string& fields) {
  return Decoded(R"({"input":"hi")" + fields + "}");
}

std::vector<text::ChatMessage> Messages(const std::string& items) {
  return Decoded(R"({"input":[)" + items + "]}").chat.chat.messages;
}

ApiError Refusal(const std::string& body) {
  const std::variant<ResponsesRequest, ApiError> result = DecodeResponsesRequest(body);
  const ApiError* const error = std::get_if<ApiError>(&result);
  return error != nullptr ? *error : ApiError{ApiErrorKind::kInternal, "accepted", ""};
}

// A conversation as one line a message.
std::string Outline(const std::vector<text::ChatMessage>& messages) {
  constexpr const char* kRoles[] = {"system", "user", "assistant", "tool", "reminder", "developer"};
  std::string outline;
  for (const text::ChatMessage& message : messages) {
    outline += kRoles[static_cast<size_t>(message.role)];
    if (!message.tool_call_id.empty()) outline += "(" + message.tool_call_id + ")";
    if (!message.reasoning.empty()) outline += " [" + message.reasoning + "]";
    outline += " " + message.content.Text();
    for (const text::ToolCall& call : message.tool_calls)
      outline += " <" + call.id + " " + call.name + " " + call.arguments + ">";
    outline += "\n";
  }
  return outline;
}

TEST(ResponsesDecode, ATextIsTheUsersAndInstructionsStandInFront) {
  const ResponsesRequest plain = WithFields("");
  EXPECT_EQ(Outline(plain.chat.chat.messages), "user hi\n");
  EXPECT_TRUE(plain.chat.chat.options.thinking);
  EXPECT_EQ(plain.chat.tools, nullptr);
  EXPECT_EQ(plain.chat.output.max_tokens, std::nullopt);
  EXPECT_FALSE(plain.chat.output.stream || plain.chat.output.logprobs || plain.seal_reasoning);
  EXPECT_EQ(Outline(WithFields(R"(,"instructions":"be brief")").chat.chat.messages),
            "system be brief\nuser hi\n");
  EXPECT_EQ(Outline(WithFields(R"(,"instructions":"")").chat.chat.messages), "user hi\n");
  EXPECT_EQ(Outline(WithFields(R"(,"instructions":null)").chat.chat.messages), "user hi\n");
}

TEST(ResponsesDecode, MessagesOfEveryRoleAndPart) {
  EXPECT_EQ(Outline(Messages(R"(
      {"type":"message","role":"developer","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
      {"role":"system","content":"c"},
      {"role":"user","content":[{"type":"input_text","text":"d"},{"type":"text","text":"e"},"f"]},
      {"type":"message","id":"msg_1","status":"completed","role":"assistant","phase":"final_answer",
       "content":[{"type":"output_text","text":"g","annotations":[],"logprobs":[]},{"type":"refusal","refusal":"h"}]},
      {"role":"user","content":null})")),
            "developer a\n\nb\nsystem c\nuser d\n\ne\n\nf\nassistant g\n\nh\nuser \n");
}

TEST(ResponsesDecode, AdjacentItemsOfTheAssistantAreOneMessage) {
  EXPECT_EQ(Outline(Messages(R"(
      {"role":"user","content":"q"},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"think"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"say"}]},
      {"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"x"}},
      {"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{\"a\": 1}","status":"completed"},
      {"type":"function_call","call_id":"c2","name":"g","namespace":"ns","arguments":{"b":2}},
      {"type":"custom_tool_call","call_id":"c3","name":"patch","input":"a\n\"b\""},
      {"type":"function_call_output","call_id":"c2","output":"two"},
      {"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"one"},{"type":"input_text","text":"1"}]},
      {"type":"custom_tool_call_output","call_id":"c3","output":"ok"},
      {"type":"reasoning","summary":[]},
      {"type":"function_call","id":"only","name":"f"},
      {"type":"function_call_output","call_id":"only","output":null},
      {"role":"assistant","content":"bye"})")),
            "user q\n"
            "assistant [think] say <c1 f {\"a\": 1}> <c2 ns::g {\"b\": 2}> "
            "<c3 patch {\"input\": \"a\\n\\\"b\\\"\"}>\n"
            "tool(c2) two\n"
            "tool(c1) one\n\n1\n"
            "tool(c3) ok\n"
            "assistant  <only f >\n"
            "tool(only) \n"
            "assistant bye\n");
}

TEST(ResponsesDecode, ReasoningIsReadWhereverItIsAndNeverBecomesText) {
  const std::string sealed = SealReasoning("sealed \u00e9");
  const auto reasoning = [](const std::string& fields) {
    const std::vector<text::ChatMessage> messages =
        Messages(R"({"type":"reasoning","id":"r")" + fields + R"(},{"role":"assistant","content":"x"})");
    if (messages.size() != 1) return std::string("not one message");
    EXPECT_EQ(messages[0].content.Text(), "x");
    return messages[0].reasoning;
  };
  const std::string encrypted = R"(,"encrypted_content":")" + sealed + "\"";
  EXPECT_EQ(
      reasoning(R"(,"content":[{"type":"reasoning_text","text":"a"},{"type":"reasoning_text","text":"b"}])"),
      "ab");
  EXPECT_EQ(
      reasoning(R"(,"summary":[{"type":"summary_text","text":"a"},{"type":"summary_text","text":"b"}])"),
      "a\n\nb");
  EXPECT_EQ(reasoning(R"(,"summary":[{"type":"summary_text","text":"s"}],"content":[{"text":"c"}])"), "c");
  EXPECT_EQ(reasoning(R"(,"summary":[],"content":null)" + encrypted), "sealed \u00e9");
  EXPECT_EQ(reasoning(R"(,"summary":[],"content":[])" + encrypted), "sealed \u00e9");
  EXPECT_EQ(reasoning(R"(,"content":[{"text":"c"}])" + encrypted), "c");
  EXPECT_EQ(reasoning(R"(,"summary":"odd","content":[1,{"text":2}],"encrypted_content":"gAAAAABo")"), "");
  EXPECT_EQ(reasoning(R"(,"encrypted_content":7)"), "");
}

// The same conversation and tools, in each dialect's words.
TEST(ResponsesDecode, MakesOfAConversationWhatChatMakesOfIt) {
  const ResponsesRequest responses = Decoded(R"({"instructions":"sys","input":[
      {"role":"developer","content":[{"type":"input_text","text":"dev"}]},
      {"role":"user","content":[{"type":"input_text","text":"q"}]},
      {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"r"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]},
      {"type":"function_call","call_id":"1","name":"f","namespace":"ns","arguments":"{}"},
      {"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"o"}]}],
      "tools":[{"type":"namespace","name":"ns","description":"about ns","tools":[
                 {"type":"function","name":"f","description":"about f","strict":true,"parameters":{"type":"object","properties":{}}}]},
               {"strict":false,"parameters":{"b":1.0},"description":"about g","name":"g","type":"function"},
               {"type":"web_search","external_web_access":false},{"type":"mcp","server_label":"x"}],
      "reasoning":{"effort":"low","summary":"auto"}})");
  std::variant<ChatCompletionRequest, ApiError> decoded = DecodeChatRequest(R"({"messages":[
      {"role":"system","content":"sys"},{"role":"developer","content":"dev"},{"role":"user","content":"q"},
      {"role":"assistant","content":"a","reasoning_content":"r",
       "tool_calls":[{"id":"1","type":"function","namespace":"ns","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"1","content":"o"}],
      "tools":[{"type":"function","namespace":{"name":"ns","description":"about ns"},"function":
                 {"name":"f","description":"about f","parameters":{"type":"object","properties":{}}}},
               {"type":"function","function":{"name":"g","description":"about g","parameters":{"b":1.0}}}],
      "reasoning_effort":"low"})");
  ASSERT_TRUE(std::holds_alternative<ChatCompletionRequest>(decoded)) << std::get<ApiError>(decoded).message;
  const ChatCompletionRequest& chat = std::get<ChatCompletionRequest>(decoded);
  EXPECT_EQ(Outline(responses.chat.chat.messages), Outline(chat.chat.messages));
  EXPECT_EQ(responses.chat.chat.options.reasoning_effort, chat.chat.options.reasoning_effort);
  ASSERT_EQ(responses.chat.chat.tools.size(), 2u);
  ASSERT_EQ(chat.chat.tools.size(), 2u);
  for (size_t t = 0; t < 2; ++t) {
    EXPECT_EQ(responses.chat.chat.tools[t].json_line, chat.chat.tools[t].json_line);
    EXPECT_EQ(responses.chat.chat.tools[t].name, chat.chat.tools[t].name);
  }
  EXPECT_EQ(responses.chat.tools->ClientName("ns::f").name_space, "ns");
}

TEST(ResponsesDecode, ACustomToolIsAFunctionOfOneString) {
  const ResponsesRequest request = WithFields(R"(,"tools":[
      {"type":"custom","name":"apply_patch","description":"Edits.",
       "format":{"type":"grammar","syntax":"lark","definition":"start: x"}},
      {"type":"namespace","name":"n","tools":[{"type":"custom","name":"c","format":{"type":"text"}}]}])");
  EXPECT_THAT(request.custom_tools, UnorderedElementsAre("apply_patch", "n::c"));
  ASSERT_EQ(request.chat.chat.tools.size(), 2u);
  EXPECT_EQ(request.chat.chat.tools[0].json_line,
            R"({"name": "apply_patch", "description": "Edits.", "parameters": {"type": "object", )"
            R"("properties": {"input": {"type": "string", "description": )"
            R"("The text must match this lark grammar:\nstart: x"}}, "required": ["input"]}})");
  EXPECT_EQ(request.chat.chat.tools[1].json_line,
            R"({"name": "n::c", "parameters": {"type": "object", )"
            R"("properties": {"input": {"type": "string"}}, "required": ["input"]}})");
}

TEST(ResponsesDecode, ToolChoiceInItsShapes) {
  using Kind = ToolChoice::Kind;
  struct Case {
    const char* choice;
    Kind kind;
    const char* name;
    std::vector<std::string> shown;
  };
  const std::vector<std::string> all = {"f", "n::g", "c"};
  const Case cases[] = {
      {"null", Kind::kAuto, "", all},
      {R"("auto")", Kind::kAuto, "", all},
      {R"("none")", Kind::kNone, "", all},
      {R"("required")", Kind::kRequired, "", all},
      {R"({"type":"function","name":"f"})", Kind::kNamed, "f", all},
      {R"({"type":"function","name":"g","namespace":"n"})", Kind::kNamed, "n::g", all},
      {R"({"type":"custom","name":"c"})", Kind::kNamed, "c", all},
      {R"({"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"},{"type":"mcp"}]})",
       Kind::kAuto,
       "",
       {"f"}},
      {R"({"type":"allowed_tools","mode":"required","tools":[{"type":"custom","name":"c"},
          {"type":"function","name":"f"}]})",
       Kind::kRequired,
       "",
       {"f", "c"}},
      {R"({"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]})", Kind::kNone, "", all},
  };
  for (const Case& c : cases) {
    const ResponsesRequest request = WithFields(R"(,"tools":[{"type":"function","name":"f"},
        {"type":"namespace","name":"n","tools":[{"type":"function","name":"g"}]},{"type":"custom","name":"c"}],
        "tool_choice":)" + std::string(c.choice));
    EXPECT_EQ(request.chat.tool_choice.kind, c.kind) << c.choice;
    EXPECT_EQ(request.chat.tool_choice.name, c.name) << c.choice;
    ASSERT_NE(request.chat.tools, nullptr) << c.choice;
    EXPECT_EQ(request.chat.tools->written_names(), c.shown) << c.choice;
  }
}

TEST(ResponsesDecode, OutputFields) {
  const ResponsesRequest request =
      WithFields(R"(,"model":"m","stream":true,"max_output_tokens":7,"temperature":0.5,
      "top_p":0.25,"parallel_tool_calls":false,"top_logprobs":3,"n":5,"max_tokens":9)");
  const OutputOptions& output = request.chat.output;
  EXPECT_EQ(output.model, "m");
  EXPECT_TRUE(output.stream);
  EXPECT_EQ(output.max_tokens, 7);
  EXPECT_EQ(output.temperature, 0.5f);
  EXPECT_EQ(output.top_p, 0.25f);
  EXPECT_EQ(output.logprobs, 3);
  EXPECT_EQ(output.n, 1);
  EXPECT_FALSE(request.chat.parallel_tool_calls);
  EXPECT_EQ(WithFields(R"(,"include":["message.output_text.logprobs"])").chat.output.logprobs, 0);
  EXPECT_TRUE(WithFields(R"(,"include":["reasoning.encrypted_content"])").seal_reasoning);
}

TEST(ResponsesDecode, Effort) {
  struct Case {
    const char* fields;
    bool thinking;
    std::optional<int> effort;
  };
  const Case cases[] = {
      {R"(,"reasoning":null)", true, std::nullopt},
      {R"(,"reasoning":{"effort":null,"summary":"auto"})", true, std::nullopt},
      {R"(,"reasoning":{"effort":"none"})", false, std::nullopt},
      {R"(,"reasoning":{"effort":"minimal"})", true, 50},
      {R"(,"reasoning":{"effort":"xhigh"})", true, 75},
      {R"(,"reasoning":{"effort":33})", true, 33},
      {R"(,"reasoning":{"effort":"max"},"reasoning_effort":"low")", true, 100},
      {R"(,"reasoning":{"effort":"max"},"thinking":{"type":"disabled"})", false, std::nullopt},
      {R"(,"chat_template_kwargs":{"thinking":false})", false, std::nullopt},
  };
  for (const Case& c : cases) {
    const text::ChatOptions options = WithFields(c.fields).chat.chat.options;
    EXPECT_EQ(options.thinking, c.thinking) << c.fields;
    EXPECT_EQ(options.reasoning_effort, c.effort) << c.fields;
  }
}

TEST(ResponsesDecode, WhatClientsSendAndOthersDecideIsTaken) {
  const ResponsesRequest request = WithFields(R"(,"store":true,"background":false,"previous_response_id":null,
      "include":["web_search_call.action.sources"],"metadata":{"k":"v"},"user":"u","service_tier":"auto",
      "truncation":"auto","prompt_cache_key":"key","prompt_cache_retention":"24h","safety_identifier":"s",
      "client_metadata":{"x":"y"},"text":{"format":{"type":"text"},"verbosity":"low"},"max_tool_calls":3,
      "stream_options":{"include_obfuscation":false},"tools":[],"tool_choice":"auto","unheard_of":[1])");
  EXPECT_THAT(request.echo, HasSubstr(R"("prompt_cache_key":"key")"));
  EXPECT_THAT(request.echo, HasSubstr(R"("metadata":{"k": "v"})"));
  EXPECT_THAT(request.echo, HasSubstr(R"("store":false)"));
  EXPECT_TRUE(text::ParseOrderedJson("{" + request.echo + "}").ok());
}

TEST(ResponsesDecode, RefusalsNameTheField) {
  struct Case {
    const char* body;
    const char* param;
    const char* says;
  };
  const Case cases[] = {
      {R"({})", "input", "required"},
      {R"({"input":7})", "input", "a string, or an array"},
      {R"({"input":[]})", "input", "at least one item"},
      {R"({"input":["x"]})", "input[0]", "an item"},
      {R"({"input":[{"text":"x"}]})", "input[0].type", "required"},
      {R"({"input":[{"type":"compaction","encrypted_content":"x"}]})", "input[0].type", "compaction"},
      {R"({"input":[{"type":"item_reference","id":"x"}]})", "input[0].type", "stores no items"},
      {R"({"input":[{"type":"message","content":"x"}]})", "input[0].role", "required"},
      {R"({"input":[{"role":"tool","content":"x"}]})", "input[0].role", "developer"},
      {R"({"input":[{"role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"u"}]}]})",
       "input[0].content[1].type", "does not read images"},
      {R"({"input":[{"role":"user","content":[{"type":"input_file","file_id":"u"}]}]})",
       "input[0].content[0].type", "input_file"},
      {R"({"input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image"}]}]})",
       "input[0].output[0].type", "does not read images"},
      {R"({"input":[{"type":"function_call_output","call_id":"c","output":{"a":1}}]})", "input[0].output",
       "a string or an array"},
      {R"({"input":[{"type":"function_call","call_id":"c","arguments":"{}"}]})", "input[0].name", "required"},
      {R"({"input":"x","instructions":["y"]})", "instructions", "a string"},
      {R"({"input":"x","previous_response_id":"resp_1"})", "previous_response_id", "stores no responses"},
      {R"({"input":"x","conversation":"conv_1"})", "conversation", "whole conversation"},
      {R"({"input":"x","prompt":{"id":"p"}})", "prompt", "instructions"},
      {R"({"input":"x","background":true})", "background", "Stream"},
      {R"({"input":"x","text":{"format":{"type":"json_object"}}})", "text.format.type", "json_object"},
      {R"({"input":"x","text":{"format":{"type":"json_schema","schema":{}}}})", "text.format.type",
       "json_schema"},
      {R"({"input":"x","reasoning":{"effort":"hardest"}})", "reasoning.effort", "between 1 and 100"},
      {R"({"input":"x","max_output_tokens":0})", "max_output_tokens", "at least 1"},
      {R"({"input":"x","tools":[{"name":"f"}]})", "tools[0].type", "required"},
      {R"({"input":"x","tools":[{"type":"function"}]})", "tools[0]", "name"},
      {R"({"input":"x","tools":[{"type":"function","name":"f"},{"type":"custom","name":"f"}]})", "tools[1]",
       "second tool"},
      {R"({"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"m"}]}]})",
       "tools[0].tools[0].type", "inside a namespace"},
      {R"({"input":"x","tool_choice":"required","tools":[{"type":"web_search"}]})", "tool_choice",
       "no tools"},
      {R"({"input":"x","tool_choice":{"type":"function","name":"f"}})", "tool_choice", "no tools"},
      {R"({"input":"x","tool_choice":{"type":"file_search"}})", "tool_choice.type", "runs no tools"},
      {R"({"input":"x","tool_choice":{"type":"function"}})", "tool_choice.name", "required"},
      {R"({"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto",
          "tools":[{"type":"function","name":"g"}]}})",
       "tool_choice.tools", "\"g\""},
  };
  for (const Case& c : cases) {
    const ApiError error = Refusal(c.body);
    EXPECT_EQ(error.status(), 400) << c.body;
    EXPECT_EQ(error.param, c.param) << c.body << ": " << error.message;
    EXPECT_THAT(error.message, HasSubstr(c.says)) << c.body;
  }
}

}  // namespace
}  // namespace millrace::api
