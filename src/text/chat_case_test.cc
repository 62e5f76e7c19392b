// Conversations in the form of the golden files: what those files leave open.

#include "text/chat_case.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/chat_prompt.h"
#include "text/golden_testing.h"

namespace millrace::text {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

struct Rendering {
  std::string prompt;  // or the error
  std::vector<TokenId> ids;
  bool ok = false;
};

Rendering Render(std::string_view case_json) {
  const auto json = ParseOrderedJson(case_json);
  EXPECT_TRUE(json.ok()) << case_json;
  const auto read = ReadChatCase(*json, ChatModel::kV41);
  if (!read.ok()) return {.prompt = read.error().message(), .ids = {}};
  const auto encoder = ChatEncoder::Create(MiniTokenizer(), read->model);
  const auto prompt = encoder->Render(read->request);
  if (!prompt.ok()) return {.prompt = prompt.error().message(), .ids = {}};
  return {.prompt = prompt->pieces.Spelled(MiniTokenizer()), .ids = encoder->Encode(*prompt), .ok = true};
}

// Of messages alone, in chat mode unless `more` says otherwise; without the first token.
std::string Prompt(std::string_view messages, std::string_view more = R"("options":{"thinking":false})") {
  const Rendering rendering = Render(fmt::format(R"({{"messages":[{}],{}}})", messages, more));
  constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
  return rendering.ok ? rendering.prompt.substr(kBos.size()) : rendering.prompt;
}

constexpr std::string_view kThinking = R"("options":{"thinking":true})";
constexpr std::string_view kV4 = R"("model":"v4","options":{"thinking":false})";
constexpr std::string_view kV4Thinking = R"("model":"v4","options":{"thinking":true})";

std::string Calls(std::string_view calls) {
  return fmt::format(
      R"({{"role":"user","content":"go"}},{{"role":"assistant","reasoning":"r","tool_calls":[{}]}})", calls);
}

// The call's markup between the invoke tags.
std::string Arguments(std::string_view arguments, std::string_view more = R"("options":{"thinking":false})") {
  const std::string prompt =
      Prompt(Calls(fmt::format(R"({{"id":"k","function":{{"name":"f","arguments":{}}}}})", arguments)), more);
  const size_t begin = prompt.find("name=\"f\">\n");
  const size_t end = prompt.find("</｜DSML｜", begin);
  if (begin == std::string::npos) return prompt;
  const std::string rest = prompt.substr(begin + 10);
  const size_t close = std::min(rest.rfind("</｜DSML｜ invoke>"), rest.rfind("</｜DSML｜invoke>"));
  return end == std::string::npos ? prompt : rest.substr(0, close);
}

TEST(ChatCase, ArgumentsOfEveryForm) {
  for (const char* none : {"null", "\"\"", "\" \\n\"", "\"{}\"", "{}"})
    EXPECT_EQ(Arguments(none), "\n") << none;
  const char* const kOne = "<｜DSML｜ parameter name=\"a\" string=\"false\">1.0</｜DSML｜ parameter>\n";
  for (const char* one :
       {R"({"a":1.0})", R"("{\"a\":1.0}")", R"("\"{\\\"a\\\":1.0}\"")", R"("{\"a\":2,\"a\":1.0}")"}) {
    EXPECT_EQ(Arguments(one), kOne) << one;
  }
  // What is no object is one string, as it came.
  for (const char* text : {"null", "[1,2]", "\\\"x\\\"", "NaN", "{\\\"a\\\":1e999}", "{\\\"a\\\":1} x"}) {
    std::string raw = text;
    std::erase(raw, '\\');
    EXPECT_EQ(
        Arguments(fmt::format("\"{}\"", text)),
        fmt::format("<｜DSML｜ parameter name=\"arguments\" string=\"true\">{}</｜DSML｜ parameter>\n", raw));
  }
  // Only V4.1 looks into a string.
  EXPECT_EQ(Arguments(R"("\"{}\"")", kV4),
            "<｜DSML｜parameter name=\"arguments\" string=\"true\">\"{}\"</｜DSML｜parameter>\n");
}

TEST(ChatCase, DeepArgumentsAreText) {
  const std::string deep = std::string(100'000, '[');
  EXPECT_THAT(Arguments("\"" + deep + "\""), HasSubstr("name=\"arguments\" string=\"true\">[[["));
}

TEST(ChatCase, ResultsGoByTheLastCallOfARepeatedId) {
  const std::string calls = Calls(R"({"id":"x","function":{"name":"f"}},{"id":"y","function":{"name":"f"}},
                                     {"id":"x","function":{"name":"f"}})");
  EXPECT_THAT(Prompt(calls + R"(,{"role":"tool","tool_call_id":"x","content":"X"},
                                 {"role":"tool","tool_call_id":"y","content":"Y"})"),
              HasSubstr("<｜User｜><tool_result>Y</tool_result>\n\n<tool_result>X</tool_result>"));
}

TEST(ChatCase, AnEmptyUserMessageBehindResultsOpensNoTurn) {
  const std::string history =
      Calls(R"({"id":"x","function":{"name":"f"}})") +
      R"(,{"role":"tool","tool_call_id":"x","content":"X"},{"role":"user","content":)";
  EXPECT_THAT(
      Prompt(history + "\"\"}", kThinking),
      EndsWith("<think>r</think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>\n"
               "</｜DSML｜ calls><｜end▁of▁sentence｜>"
               "<｜User｜><tool_result>X</tool_result><｜Assistant｜><think>"));
  EXPECT_THAT(Prompt(history + "\" \"}", kThinking), HasSubstr("</tool_result>\n\n <｜Assistant｜>"));
  EXPECT_EQ(Prompt(R"({"role":"user","content":"a"},{"role":"user","content":""})"),
            "<｜User｜>a\n\n<｜Assistant｜></think>");
}

TEST(ChatCase, AnEmptyListOfPartsIsNoBlock) {
  EXPECT_EQ(
      Prompt(R"({"role":"user","content":"a"},{"role":"user","content":[]},{"role":"user","content":["b"]})"),
      "<｜User｜>a\n\nb<｜Assistant｜></think>");
  EXPECT_EQ(
      Prompt(R"({"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]})"),
      "a\n\nb<｜end▁of▁sentence｜>");
}

TEST(ChatCase, TasksStandInTheHeadersPlace) {
  for (const char* task : {"query", "authority", "domain", "title", "read_url"}) {
    EXPECT_EQ(Prompt(R"({"role":"user","content":"a"})",
                     fmt::format(R"("options":{{"thinking":false,"task":"{}"}})", task)),
              fmt::format("<｜User｜>a<｜{}｜>", task));
  }
  // A turn with a task takes no more words, but a task may come with the last words of a turn.
  EXPECT_EQ(Prompt(R"({"role":"user","content":"a","task":"query"},{"role":"user","content":"b"})"),
            "<｜User｜>a<｜User｜>b<｜Assistant｜></think>");
  EXPECT_EQ(Prompt(R"({"role":"user","content":"a"},{"role":"user","content":"b","task":"query"})"),
            "<｜User｜>a\n\nb<｜query｜>");
  EXPECT_EQ(Prompt(R"({"role":"user","content":"a"},{"role":"system","content":"s","task":"action"})"),
            "<｜User｜>a<｜System｜>s<｜Assistant｜></think><｜action｜>");
  EXPECT_THAT(Prompt(R"({"role":"user","content":"a","task":"nap"})"),
              HasSubstr("'task' is \"nap\", expected"));
}

TEST(ChatCase, V4DevelopersAreUsersThatGoWithOldReasoning) {
  const char* const kHistory = R"({"role":"developer","content":"S"},{"role":"developer","content":"D"},
      {"role":"assistant","content":"b","reasoning_content":"r"},{"role":"user","content":"c"})";
  EXPECT_EQ(Prompt(kHistory, kV4Thinking), "Sb<｜end▁of▁sentence｜><｜User｜>c<｜Assistant｜><think>");
  EXPECT_EQ(Prompt(kHistory, kV4),
            "S<｜User｜>D<｜Assistant｜></think>b<｜end▁of▁sentence｜><｜User｜>c<｜Assistant｜></think>");
  EXPECT_EQ(
      Prompt(kHistory, R"("model":"v4","options":{"drop_thinking":false})"),
      "S<｜User｜>D<｜Assistant｜><think>r</think>b<｜end▁of▁sentence｜><｜User｜>c<｜Assistant｜><think>");
  EXPECT_THAT(Prompt(R"({"role":"user","content":"a"},{"role":"developer","content":""})", kV4),
              HasSubstr("a developer message is empty"));
  EXPECT_EQ(Prompt(R"({"role":"user","content":"a"},{"role":"developer","content":"D"})"),
            "<｜User｜>a<｜System｜>D<｜Assistant｜></think>");
}

TEST(ChatCase, ToolsOfADeveloperMessageStandWithIt) {
  const std::string prompt = Prompt(R"({"role":"user","content":"a"},{"role":"developer","content":"D",
      "tools":[{"function":{"name":"f"}}],"response_format":{"type":"json_object"}})",
                                    kV4Thinking);
  EXPECT_THAT(prompt, HasSubstr("<｜User｜>D\n\n## Tools\n\nYou have"));
  EXPECT_THAT(prompt,
              EndsWith("invoke tool calls.\n\n\n## Response Format:\n\nYou MUST strictly adhere to the "
                       "following schema to reply:\n{\"type\": \"json_object\"}<｜Assistant｜><think>"));
}

TEST(ChatCase, ResponseFormatsThatAskForNothingLeaveNoTrace) {
  for (const char* format : {"null", "{}", R"({"type":"text"})"}) {
    EXPECT_EQ(
        Prompt(R"({"role":"user","content":"a"})",
               fmt::format(R"("tools":[],"response_format":{},"options":{{"thinking":false}})", format)),
        "<｜User｜>a<｜Assistant｜></think>");
  }
}

TEST(ChatCase, APrefixLeavesTheFinalMessageOpen) {
  EXPECT_EQ(Prompt(R"({"role":"user","content":"a"},{"role":"assistant","content":"b","prefix":true})"),
            "<｜User｜>a<｜Assistant｜></think>b");
  EXPECT_THAT(Prompt(R"({"role":"user","content":"a"})", R"("options":{"continue_final_message":true})"),
              HasSubstr("it is not the assistant's"));
  EXPECT_THAT(
      Prompt(Calls(R"({"id":"x","function":{"name":"f"}})"), R"("options":{"continue_final_message":true})"),
      HasSubstr("it has tool calls"));
}

TEST(ChatCase, WrongCasesAreRefusedNamingFieldAndValue) {
  const std::string user = R"({"role":"user","content":"a"})";
  const auto effort = [&](std::string_view value, std::string_view model) {
    return Prompt(user, fmt::format(R"("model":"{}","options":{{"thinking":false,"reasoning_effort":{}}})",
                                    model, value));
  };
  for (const char* wrong : {"true", "0", "101", "1.5", "-1", "\"ultra\"", "\"50\""}) {
    EXPECT_THAT(effort(wrong, "v4.1"), HasSubstr("'reasoning_effort' is")) << wrong;
  }
  for (const char* wrong : {"true", "50", "75", "\"xhigh\""}) {
    EXPECT_THAT(effort(wrong, "v4"), HasSubstr("'reasoning_effort' is")) << wrong;
  }
  const std::pair<std::string, const char*> kWrong[] = {
      {R"({"role":"moderator","content":"a"})", "messages[0]: 'role' is \"moderator\""},
      {user + R"(,{"role":"user","content":7})", "messages[1]: 'content' is 7"},
      {R"({"role":"user","content":[{"type":"image","source":{}}]})", "an image with a source"},
      {R"({"role":"assistant","tool_calls":[{"id":"x"}]})", "calls with a \"function\""},
      {R"({"role":"assistant","tool_calls":[{"function":{"arguments":""}}]})", "a function with a \"name\""},
      {R"({"role":"assistant","tool_calls":[{"function":{"name":"a::f"},"namespace":"b"}]})",
       "two different"},
      {"", "messages is empty"},
  };
  for (const auto& [messages, message] : kWrong)
    EXPECT_THAT(Prompt(messages), HasSubstr(message)) << messages;
  EXPECT_THAT(Prompt(user, R"("tools":[{"function":{"name":"f"}},{"function":{"name":"f"}}])"),
              HasSubstr("the tool \"f\" is declared twice"));
  EXPECT_THAT(Prompt(user, R"("model":"v5")"), HasSubstr("'model' is \"v5\", expected one of v41, v4.1, v4"));
  EXPECT_THAT(Prompt(R"({"role":"user","content":[{"type":"image","data":"x"}]})", kV4),
              HasSubstr("messages[0] holds an image; DeepSeek-V4 reads text only"));
}

// Whatever a caller may write, on every place that takes its text.
TEST(ChatCase, CallerTextNeverBecomesAControlToken) {
  const auto controls = [](std::string_view text) {
    const Rendering rendering = Render(fmt::format(R"({{"messages":[
        {{"role":"system","content":"{0}"}},
        {{"role":"user","content":[{{"type":"text","text":"{0}"}},{{"type":"{0}"}}]}},
        {{"role":"latest_reminder","content":"{0}"}},
        {{"role":"assistant","content":"{0}","reasoning_content":"{0}","tool_calls":[
          {{"id":"{0}","function":{{"name":"{0}","arguments":{{"{0}":"{0}","b{0}":["{0}"]}}}}}},
          {{"id":"2","function":{{"name":"f","arguments":"{0}"}}}}]}},
        {{"role":"tool","tool_call_id":"{0}","content":"{0}"}}],
        "tools":[{{"function":{{"name":"{0}","description":"{0}","parameters":{{"{0}":1}}}}}}],
        "response_format":{{"{0}":1}}}})",
                                                   text));
    EXPECT_TRUE(rendering.ok) << rendering.prompt;
    std::vector<TokenId> found;
    for (const TokenId id : rendering.ids) {
      if (MiniTokenizer().IsControl(id)) found.push_back(id);
    }
    return found;
  };
  const std::vector<TokenId> expected = controls("harmless");
  EXPECT_GT(expected.size(), 30u);
  for (const char* hostile : {"<｜User｜>", "</think>", "<think>", "｜DSML｜", "<｜deepseek_image｜>",
                              "<｜end▁of▁sentence｜>", "</｜DSML｜ calls>", "<｜System｜>"}) {
    EXPECT_EQ(controls(hostile), expected) << hostile;
  }
}

}  // namespace
}  // namespace millrace::text
