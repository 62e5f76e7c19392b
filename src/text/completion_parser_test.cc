#include "text/completion_parser.h"

#include <gtest/gtest.h>

#include <ctime>

#include "text/completion_parser_testing.h"

// What the golden cases leave open, row by row of section 11 of the chat encoding.
namespace millrace::text {
namespace {

constexpr std::string_view kEnd = "<｜end▁of▁sentence｜>";

ToolSchema Tool(std::string name, const char* parameters) {
  const auto json = ParseOrderedJson(parameters);
  EXPECT_TRUE(json.ok());
  return ToolSchema::Of(std::move(name), *json);
}

std::shared_ptr<const ToolSchemas> Tools() {
  return std::make_shared<const ToolSchemas>(std::vector<ToolSchema>{
      Tool("weather", R"({"properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                          "note": {"type": ["null", "string"]}, "any": {"type": ["string", "integer"]}},
                          "required": ["city"]})"),
      Tool("noop", R"({"type": "object", "properties": {}})"),
      Tool("ask", R"({"properties": {"input": {"type": "object"}}})"),
  });
}

// `text` with each tag `<:...>` given the mark.
std::string Marked(std::string_view text, std::string_view mark = "｜DSML｜") {
  std::string marked;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool opens = i > 0 && (text[i - 1] == '<' || (i > 1 && text[i - 1] == '/' && text[i - 2] == '<'));
    if (text[i] == ':' && opens) {
      marked += mark;
    } else {
      marked += text[i];
    }
  }
  return marked;
}

// The parse of a completion in chat mode, the same however it is cut.
ParseResult Parse(std::string_view completion, CompletionEnd end = CompletionEnd::kStop,
                  bool thinking = false) {
  const ParseCase c{.completion = Marked(completion), .thinking = thinking, .tools = Tools(), .end = end};
  ParseResult whole = ParseCut(c, {});
  EXPECT_EQ(ParseCut(c, EveryByte(c.completion)), whole) << c.completion;
  EXPECT_EQ(ParseCut(c, EveryCharacter(c.completion)), whole) << c.completion;
  return whole;
}
ParseResult ParseThinking(std::string_view completion, CompletionEnd end = CompletionEnd::kStop) {
  return Parse(completion, end, /*thinking=*/true);
}

ParseResult Answer(std::string_view content) {
  return {.message = {.reasoning = {}, .content = Marked(content), .calls = {}},
          .reason = CompletionReason::kStop};
}
ParseResult Thought(std::string_view reasoning, std::string_view content = {}) {
  ParseResult result = Answer(content);
  result.message.reasoning = Marked(reasoning);
  return result;
}
ParseResult Cut(ParseResult result) {
  result.reason = CompletionReason::kLength;
  return result;
}
ParseResult With(ParseResult result, std::vector<ParsedCall> calls) {
  result.message.calls = std::move(calls);
  for (const ParsedCall& call : result.message.calls) {
    if (call.complete) result.reason = CompletionReason::kToolCalls;
  }
  return result;
}
ParsedCall Call(std::string name, std::string arguments) {
  return {.name = std::move(name), .arguments = std::move(arguments), .complete = true};
}
ParsedCall Open(std::string name, std::string arguments) {
  return {.name = std::move(name), .arguments = std::move(arguments), .complete = false};
}

// A block with one call of `weather` that holds `body`.
std::string WeatherCall(std::string_view body) {
  return std::string("<: calls>\n<: invoke name=\"weather\">\n") + std::string(body) +
         "</: invoke>\n</: calls>";
}
ParseResult Weather(std::string arguments) {
  return With(Answer(""), {Call("weather", std::move(arguments))});
}

TEST(CompletionParser, WritesArgumentsAsPythonDoes) {
  EXPECT_EQ(
      Parse(WeatherCall("<: parameter name=\"city\" string=\"true\">\"a\"\\\n\té\x01/</: parameter>\n"
                        "<: parameter name=\"days\" string=\"false\">[1,2.50,{\"a\":1e5}]</: parameter>\n")),
      Weather(R"({"city": "\"a\"\\\n\té\u0001/", "days": [1, 2.5, {"a": 100000.0}]})"));
}

TEST(CompletionParser, BlockInTheReasoningNeedsAnInvoke) {
  const std::string_view invoke = "<: invoke name=\"noop\">\n\n</: invoke>\n</: calls>";
  const auto called = [](std::string_view reasoning) {
    return With(Thought(reasoning), {Call("noop", "{}")});
  };
  EXPECT_EQ(ParseThinking("a\n\n<: calls>\n" + std::string(invoke)), called("a"));
  EXPECT_EQ(ParseThinking("a\n<: calls> then\n\n" + std::string(invoke)), called("a\n"));
  EXPECT_EQ(ParseThinking("a\n\n\n<: calls></: calls> <: calls>" + std::string(invoke)), called("a\n"));
  EXPECT_EQ(ParseThinking("a\n\n<: calls>\n<think>b</: calls></think>c"),
            Thought("a\n\n<: calls>\n<think>b</: calls>", "c"));
  EXPECT_EQ(ParseThinking("a\n\n<: calls>\n<: inv"), Thought("a\n\n<: calls>\n<: inv"));
  EXPECT_EQ(ParseThinking("a\n<: calls>\n\n", CompletionEnd::kLength), Cut(Thought("a\n<: calls>\n\n")));
}

TEST(CompletionParser, ReasoningKeepsAllOtherMarkup) {
  EXPECT_EQ(ParseThinking("a\n\n<: invoke name=\"noop\">\n</: invoke>\n</: calls></think>b"),
            Thought("a\n\n<: invoke name=\"noop\">\n</: invoke>\n</: calls>", "b"));
  EXPECT_EQ(ParseThinking("\n\n\n<\n\n</think>\n"), Thought("\n\n\n<\n\n", "\n"));
}

TEST(CompletionParser, ThinkOpensReasoningOnlyAtTheStart) {
  EXPECT_EQ(Parse("<think>a</think><think>b</think>c<think>d"), Thought("ab", "c<think>d"));
  EXPECT_EQ(ParseThinking("<think><think>a<think>b</think></think><think>c"), Thought("a<think>bc"));
  EXPECT_EQ(Parse("\n<think>a</think>b"), Answer("\n<think>ab"));
  EXPECT_EQ(Parse("a\n</think>\n<: calls></: calls>"),
            Answer("a\n\n"));  // no blank line: the token was between
}

TEST(CompletionParser, BareInvokeCountsWhenDeclaredAndClosed) {
  const std::string call = "<: invoke name=\"weather\"><: parameter name=\"city\" string=\"true\">x";
  const std::string unclosed = call + "</: parameter>";
  const auto called = [](std::string_view content) {
    return With(Answer(content), {Call("weather", R"({"city": "x"})")});
  };
  EXPECT_EQ(Parse("a\n\n\n" + unclosed + "</: invoke>\nb"), called("a\n"));
  EXPECT_EQ(Parse("a\n" + unclosed + "</: invoke>"), called("a\n"));
  EXPECT_EQ(Parse("a\n\n" + call + "\n</: invoke>"), called("a"));
  EXPECT_EQ(Parse("a\n\n<: invoke name=\"noop\"/>b"), With(Answer("a"), {Call("noop", "{}")}));
  // Another invoke, a block or its closing tag comes first: text. Only tags outside it keep their meaning.
  EXPECT_EQ(Parse("a\n\n" + unclosed + "\n" + unclosed + "</: invoke>"), called("a\n\n" + unclosed + "\n"));
  EXPECT_EQ(Parse(unclosed + "\n\n" + WeatherCall(unclosed.substr(unclosed.find("<: par")))),
            called(unclosed));
  EXPECT_EQ(Parse("a" + unclosed + "\n</: calls>b"), Answer("a" + unclosed + "b"));
  EXPECT_EQ(Parse("a\n\n" + unclosed + "\n\n</: inv"), Answer("a\n\n" + unclosed + "\n\n</: inv"));
  // What stands in a value is the value's.
  EXPECT_EQ(Parse(call + "<: calls></: parameter></: invoke>"),
            With(Answer(""), {Call("weather", "{\"city\": \"x" + Marked("<: calls>") + "\"}")}));
  EXPECT_EQ(Parse("a\n\n" + unclosed, CompletionEnd::kLength), Cut(Answer("a")));
  EXPECT_EQ(Parse("a\n" + call + "\n", CompletionEnd::kLength), Cut(Answer("a\n")));
}

TEST(CompletionParser, InvokeOfAnUndeclaredToolIsText) {
  const std::string element =
      "<: invoke name=\"other\">\n<: parameter name=\"a\" string=\"true\">x <: calls> </think></: "
      "parameter>\n"
      "</: invoke>";
  EXPECT_EQ(Parse("a\n\n" + element + "b\n</: invoke>c"), Answer("a\n\n" + element + "bc"));
  EXPECT_EQ(Parse("a<: invoke name=\"other\"/>\n</: invoke>b"), Answer("a<: invoke name=\"other\"/>b"));
  EXPECT_EQ(Parse("a<: invoke>b</: invoke>c"), Answer("a<: invoke>b</: invoke>c"));
  EXPECT_EQ(Parse("a<: invoke name=\"other\">b</think>c\n\n<: calls><: invoke name=\"noop\"/>"),
            With(Answer("a<: invoke name=\"other\">bc"), {Call("noop", "{}")}));
  EXPECT_EQ(Parse("a<: invoke name=\"other\">b\n\n</: calls>c"), Answer("a<: invoke name=\"other\">bc"));
}

TEST(CompletionParser, AfterCallsOnlyCallsCount) {
  const std::string block = "<: calls><: invoke name=\"noop\"/></: calls>";
  const std::vector<ParsedCall> two = {Call("noop", "{}"), Call("noop", "{}")};
  EXPECT_EQ(Parse("a" + block + "b</think><think>c" + block + "d"), With(Answer("a"), two));
  EXPECT_EQ(Parse(block + "\n<: invoke name=\"noop\"></: invoke>"), With(Answer(""), two));
  EXPECT_EQ(Parse(block + "<: invoke name=\"other\"></: invoke>b<: invoke name=\"noop\">"),
            With(Answer(""), {Call("noop", "{}")}));
  EXPECT_EQ(Parse("<: calls/>a"), Answer(""));
}

TEST(CompletionParser, AcceptsEverySpellingOfTags) {
  for (const std::string_view mark : {"｜DSML｜", "｜｜DSML｜｜", "|DSML|", "||DSML||", "‖DSML‖", "DSML｜"}) {
    for (const std::string_view space : {"", " "}) {
      for (const std::string_view calls : {"calls", "tool_calls", "function_calls"}) {
        const auto tag = [&](std::string_view name) {
          return std::string(mark) + std::string(space) + std::string(name);
        };
        const std::string completion = "a\n\n<" + tag(calls) + ">\n<" + tag("invoke") +
                                       " name=\"weather\">\n<" + tag("parameter") +
                                       " name=\"city\" string=\"true\">x</" + tag("parameter") + ">\n</" +
                                       tag("invoke") + ">\n</" + tag(calls) + ">\n";
        EXPECT_EQ(Parse(completion), With(Answer("a"), {Call("weather", R"({"city": "x"})")})) << completion;
      }
    }
  }
  for (const char* text :
       {"<:  calls>", "<: call>", "<: callss>", "< : calls>", "<: Calls>", "<｜DSML calls>",
        "<|DSML｜ calls>", "<DSML| calls>", "<DSML calls>", "<｜｜DSML｜ calls>"}) {
    EXPECT_EQ(Parse(text), Answer(text));
  }
}

TEST(CompletionParser, ReadsAttributesInAnyOrder) {
  EXPECT_EQ(Parse("<: calls id=\"1\" >\n<: invoke\n a=\">\" name=\"wea</ther>\"\t>"
                  "<: parameter string=\"true\" x.y=\"\"\r\nname=\"ci\nty\" >x</: parameter></: invoke>"),
            With(Answer(""), {Call("wea</ther>", "{\"ci\\nty\": \"x\"}")}));
  EXPECT_EQ(Parse(WeatherCall("<: parameter name=\"city\" string=\"true\"/><: parameter name=\"days\"/>")),
            Weather(R"({"city": "", "days": ""})"));
}

TEST(CompletionParser, ValueEndsAtTheNextTag) {
  const std::string value = "<: parameter name=\"city\" string=\"true\">x <: calls> <: parameter city=y>\n\n";
  const std::string json = "{\"city\": \"x " + Marked("<: calls> <: parameter city=y>") + "\\n\"";
  const std::string head = "<: calls><: invoke name=\"weather\">";
  EXPECT_EQ(Parse(head + value + "</: invoke>"), Weather(json + "}"));
  EXPECT_EQ(Parse(head + value + "</: calls>"), Weather(json + "}"));
  EXPECT_EQ(Parse(head + value + "<: parameter name=\"days\" string=\"false\">1\n</: invoke>"),
            Weather(json + ", \"days\": 1}"));
  EXPECT_EQ(Parse(head + value + "<: invoke name=\"noop\"/>"),
            With(Answer(""), {Call("weather", json + "}"), Call("noop", "{}")}));
  EXPECT_EQ(Parse(head + value + "</: parameter>"),
            Weather("{\"city\": \"x " + Marked("<: calls> <: parameter city=y>") + "\\n\\n\"}"));
}

TEST(CompletionParser, OpenCallCountsIfTheModelStoppedBetweenValues) {
  const std::string head = "<: calls><: invoke name=\"weather\">\n";
  const std::string city = "<: parameter name=\"city\" string=\"true\">x</: parameter>";
  EXPECT_EQ(Parse(head), Weather("{}"));
  EXPECT_EQ(Parse(head + city + "\n</: inv"), Weather(R"({"city": "x"})"));
  EXPECT_EQ(Parse(head + city + "\n</: inv", CompletionEnd::kLength),
            Cut(With(Answer(""), {Open("weather", R"({"city": "x")")})));
  EXPECT_EQ(Parse(head + "<: parameter name=\"city\" string=\"true\">x\n</: par"),
            With(Answer(""), {Open("weather", R"({"city": "x)")}));
  EXPECT_EQ(Parse(head + "{\"city\": \"x\"}\n</: inv"), Weather(R"({"city": "x"})"));
  EXPECT_EQ(Parse(head + "{\"city\": \"x\""), With(Answer(""), {Open("weather", "")}));
  EXPECT_EQ(Parse(head + "{\"city\": \"x\"}", CompletionEnd::kLength),
            Cut(With(Answer(""), {Open("weather", "")})));
}

TEST(CompletionParser, ReadsAJsonObjectInPlaceOfParameters) {
  EXPECT_EQ(Parse(WeatherCall(" {\"city\":\"x\",\"city\":\"<y\",\n\"n\":1.0}\n\n")),
            Weather(R"({"city": "<y", "n": 1.0})"));
  EXPECT_EQ(Parse(WeatherCall("{\"city\": }\n")), Weather(R"({"arguments": "{\"city\": }"})"));
  EXPECT_EQ(Parse(WeatherCall("{\"arguments\": {\"city\": \"x\"}}")), Weather(R"({"city": "x"})"));
  EXPECT_EQ(Parse(WeatherCall("{\"arguments\": {\"town\": \"x\"}}")),
            Weather(R"({"arguments": {"town": "x"}})"));
  EXPECT_EQ(Parse(WeatherCall("so {\"city\": \"x\"}")), Weather("{}"));
  EXPECT_EQ(Parse("<: calls><: invoke name=\"weather\">{}<: invoke name=\"noop\">{}</: calls>"),
            With(Answer(""), {Call("weather", "{}"), Call("noop", "{}")}));
}

TEST(CompletionParser, TypeOfAValueWithoutItsAttributeIsTheDeclaredOne) {
  const auto value = [](std::string_view name, std::string_view attribute, std::string_view text) {
    const std::string parameter = "<: parameter name=\"" + std::string(name) + "\"" + std::string(attribute) +
                                  ">" + std::string(text) + "</: parameter>";
    return Parse(WeatherCall(parameter)).message.calls.at(0).arguments;
  };
  EXPECT_EQ(value("city", "", "1"), R"({"city": "1"})");
  EXPECT_EQ(value("note", " string=\"yes\"", "1"), R"({"note": "1"})");
  EXPECT_EQ(value("any", "", "1"), R"({"any": 1})");
  EXPECT_EQ(value("days", "", " 1 "), R"({"days": 1})");
  EXPECT_EQ(value("other", "", "yes"), R"({"other": "yes"})");
  EXPECT_EQ(value("city", " string=\"false\"", "1"), R"({"city": 1})");
  EXPECT_EQ(value("days", " string=\"false\"", "NaN"), R"({"days": "NaN"})");
  EXPECT_EQ(value("days", " string=\"false\"", "1e999 "), R"({"days": "1e999 "})");
  EXPECT_EQ(value("days", " string=\"false\"", ""), R"({"days": ""})");
  const std::string deep = std::string(127, '[') + std::string(127, ']');
  EXPECT_EQ(value("days", "", deep), "{\"days\": " + deep + "}");
  EXPECT_EQ(value("days", "", "[" + deep + "]"), "{\"days\": \"[" + deep + "]\"}");
}

TEST(CompletionParser, SendsTheKeyOfARepeatedParameterAgain) {
  EXPECT_EQ(Parse(WeatherCall("<: parameter name=\"city\" string=\"true\">x</: parameter>"
                              "<: parameter name=\"city\" string=\"true\">y</: parameter>")),
            Weather(R"({"city": "x", "city": "y"})"));
}

TEST(CompletionParser, UnwrapsALoneParameterThatHoldsAllArguments) {
  const auto arguments = [](std::string_view tool, std::string_view parameters) {
    return Parse("<: calls><: invoke name=\"" + std::string(tool) + "\">" + std::string(parameters) +
                 "</: calls>")
        .message.calls.at(0)
        .arguments;
  };
  const auto lone = [](std::string_view name, std::string_view string, std::string_view value) {
    return "<: parameter name=\"" + std::string(name) + "\" string=\"" + std::string(string) + "\">" +
           std::string(value) + "</: parameter>";
  };
  EXPECT_EQ(arguments("weather", lone("input", "true", "{\"city\":\"x\"}")), R"({"city": "x"})");
  EXPECT_EQ(arguments("weather", lone("input", "false", "\"{\\\"city\\\":\\\"x\\\"}\"")), R"({"city": "x"})");
  EXPECT_EQ(arguments("noop", lone("arguments", "false", "{}")), "{}");
  // A required key is missing; a key is unknown; no object; a property; undeclared; not alone.
  EXPECT_EQ(arguments("weather", lone("input", "false", "{\"days\":1}")), R"({"input": {"days": 1}})");
  EXPECT_EQ(arguments("weather", lone("input", "false", "{\"city\":1,\"x\":2}")),
            R"({"input": {"city": 1, "x": 2}})");
  EXPECT_EQ(arguments("noop", lone("input", "true", "[]")), R"({"input": "[]"})");
  EXPECT_EQ(arguments("ask", lone("input", "false", "{\"input\":{}}")), R"({"input": {"input": {}}})");
  EXPECT_EQ(arguments("other", lone("input", "false", "{}")), R"({"input": {}})");
  EXPECT_EQ(arguments("noop", lone("input", "false", "{}") + lone("input", "false", "{}")),
            R"({"input": {}, "input": {}})");
  EXPECT_EQ(arguments("weather", lone("days", "false", "1") + lone("input", "false", "{\"city\":\"x\"}")),
            R"({"days": 1, "input": {"city": "x"}})");
}

TEST(CompletionParser, RemovesOrphanClosersWithTheirNewlines) {
  EXPECT_EQ(Parse("a\n\n\n</: invoke>\nb</:calls>\n</: parameter> c"), Answer("a\n\nb c"));
  EXPECT_EQ(Parse("a</: invoke >b</: invoke/>"), Answer("a</: invoke >b</: invoke/>"));
}

TEST(CompletionParser, SkipsElementsWhoseTagsCannotBeRead) {
  const std::string city = "<: parameter name=\"city\" string=\"true\">x</: parameter>";
  EXPECT_EQ(Parse(WeatherCall(
                city + "<: parameter nme=\"a\">y</: parameter><: parameter \"days\">z\n</: parameter>" +
                "<: parameter name=\"days\" string=\"false\">1</: parameter>")),
            Weather(R"({"city": "x", "days": 1})"));
  EXPECT_EQ(Parse("<: calls><: invoke name=\"weather\">" + city + "<: invoke nme=x>" +
                  "<: parameter name=\"days\">1</: parameter></: invoke><: invoke name=\"noop\"/>"),
            With(Answer(""), {Call("weather", R"({"city": "x"})"), Call("noop", "{}")}));
  EXPECT_EQ(Parse(WeatherCall("<: parameter days=\"<: parameter name=\"days\">1</: parameter>")),
            Weather(R"({"days": 1})"));
}

TEST(CompletionParser, EndTokenEndsEverything) {
  const std::string end(kEnd);
  EXPECT_EQ(Parse("a" + end + "b</think>" + end), Answer("a"));
  EXPECT_EQ(Parse("a\n\n<: calls>" + end + "<: invoke name=\"noop\"/>"), Answer("a"));
  EXPECT_EQ(ParseThinking("a\n\n<: cal" + end + "ls>"), Thought("a\n\n<: cal"));
  EXPECT_EQ(Parse("<: calls><: invoke name=\"weather" + end + "\">"), Answer(""));
}

TEST(CompletionParser, LengthLimitDropsFragmentsThatHoldTheMark) {
  const auto cut = [](std::string_view text) { return Parse(text, CompletionEnd::kLength); };
  for (const char* fragment :
       {"<:", "<: ", "<:c", "<: tool_call", "<: invoke name=\"noop\"", "<: invoke name=\"noop\"/", "<:invoke",
        "<｜｜DSML｜", "<||DSML|", "<DSML｜", "<|DSML| fun"}) {
    EXPECT_EQ(cut("a\n\n" + std::string(fragment)), Cut(Answer("a"))) << fragment;
    EXPECT_EQ(cut("a\n" + std::string(fragment)), Cut(Answer("a\n"))) << fragment;
    EXPECT_EQ(Parse("a\n\n" + std::string(fragment)), Answer("a\n\n" + std::string(fragment))) << fragment;
  }
  EXPECT_EQ(cut("a\n</: para"), Cut(Answer("a")));
  for (const char* fragment : {"<", "</", "<｜", "<｜DSML", "<|DSML", "<DSML", "</thi", "<: p", "<: callx"}) {
    EXPECT_EQ(cut("a\n\n" + std::string(fragment)), Cut(Answer("a\n\n" + std::string(fragment)))) << fragment;
  }
  const auto thinking = [](std::string_view text) { return ParseThinking(text, CompletionEnd::kLength); };
  EXPECT_EQ(thinking("a\n\n<: cal"), Cut(Thought("a")));
  EXPECT_EQ(thinking("a\n\n<: inv"), Cut(Thought("a\n\n<: inv")));
  EXPECT_EQ(thinking("a\n\n</: cal"), Cut(Thought("a\n\n</: cal")));
}

TEST(CompletionParser, WithoutToolsMarkupIsText) {
  const std::string text = Marked("a\n\n<: calls>\n<: invoke name=\"noop\"/></: calls>");
  for (const auto& tools : {std::shared_ptr<const ToolSchemas>(),
                            std::make_shared<const ToolSchemas>(std::vector<ToolSchema>{})}) {
    CompletionParser parser({.starts_in_reasoning = true, .tools = tools});
    EXPECT_EQ(parser.PushText(text + "</think>").reasoning, text);
    EXPECT_EQ(parser.PushText("\n\n").content, "\n\n");  // nothing to wait for
    EXPECT_EQ(parser.PushText("<｜DSML｜").content, "<｜DSML｜");
    EXPECT_TRUE(parser.Finish(CompletionEnd::kLength).empty());
  }
}

TEST(CompletionParser, RepairsWhatIsNoUtf8) {
  EXPECT_EQ(Parse("a\xE6\xBC</think>\xFF"
                  "b\xE6"),
            Answer("a\xEF\xBF\xBD\xEF\xBF\xBD"
                   "b\xEF\xBF\xBD"));
  EXPECT_EQ(Parse(WeatherCall("<: parameter name=\"city\" string=\"true\">\xE6\xBC</: parameter>")),
            Weather("{\"city\": \"\xEF\xBF\xBD\"}"));
}

// Pushes text piece by piece; after each piece exactly the text in `out` must have come.
struct Piece {
  std::string_view push;
  std::string_view out;
};
void ExpectStream(CompletionParser parser, const std::vector<Piece>& pieces) {
  for (const auto& [push, out] : pieces) {
    const ParsedDelta delta = parser.PushText(Marked(push));
    std::string text = delta.reasoning + delta.content;
    for (const CallDelta& call : delta.calls) {
      if (!call.name.empty()) text += "[" + call.name + "]";
      text += call.arguments;
      if (call.complete) text += ".";
    }
    EXPECT_EQ(text, Marked(out)) << "after " << push;
  }
}

TEST(CompletionParser, HoldsBackTextNoLongerThanItMust) {
  ExpectStream(CompletionParser({.starts_in_reasoning = true, .tools = Tools()}),
               {{"a\n", "a"},
                {"\n", ""},
                {"\n", "\n"},
                {"b", "\n\nb"},
                {"<", ""},
                {"t", ""},
                {"o", "<to"},
                {"\n\n<:", ""},
                {" c", ""},
                {"o", "\n\n<: co"},
                {"<: calls>\nx", ""},
                {"</think>", "<: calls>\nx"},
                {"\n<: pa", "\n<: pa"},
                {"\n\n<: invoke name=\"a\"", ""},
                {">b", "\n\n<: invoke name=\"a\">b"},
                {"</: invoke>", "</: invoke>"},
                {"</: invok", ""},
                {"e>x", "x"},
                {"<: invoke name=\"noop\">{}", ""},
                {"</: invoke", ""},
                {">", "[noop]{}."}});
}

TEST(CompletionParser, StreamsArgumentsAsTheyCome) {
  ExpectStream(CompletionParser({.starts_in_reasoning = false, .tools = Tools()}),
               {{"<: calls>\n<: invoke name=\"weather\"", ""},
                {">\n", "[weather]"},
                {"<: parameter name=\"city\" string=\"true\">", ""},
                {"L", "{\"city\": \"L"},
                {"\"\n", "\\\""},
                {"\n", "\\n"},
                {"<", ""},
                {"b", "\\n<b"},
                {"</: parameter", ""},
                {">", "\""},
                {"<: parameter name=\"note\">", ""},
                {"é", ", \"note\": \"é"},
                {"\n<: parameter name=\"days\" string=\"false\">", "\""},
                {"[1,2]", ""},
                {"</:parameter>", ", \"days\": [1, 2]"},
                {"</:invoke>", "}."},
                {"<: invoke name=\"noop\"><: parameter name=\"input\" string=\"true\">x", "[noop]"},
                {"</: parameter>", ""},
                {"<: parameter name=\"b\" string=\"true\">y", "{\"input\": \"x\", \"b\": \"y"}});
}

TEST(CompletionParser, HostileRunsAreHeldBrieflyAndTakeLinearTime) {
  for (const std::string_view unit :
       {"<", "\n", "\n<", "</", "<:", "<: ", "</: inv", "<: calls", "<: invoke name=\"", "<: invoke a=\"b\" ",
        "<: invoke name=\"noop\" ", "<think", "<｜", "\xE6", "<: invoke name=\"other\">", "</: parameter>"}) {
    for (const bool thinking : {false, true}) {
      CompletionParser parser({.starts_in_reasoning = thinking, .tools = Tools()});
      const std::string marked = Marked(unit);
      std::string run;
      while (run.size() < (size_t{1} << 18)) run += marked;
      size_t out = 0;
      size_t held = 0;
      const std::clock_t start = std::clock();  // processor time: the machine may be busy
      for (size_t i = 0; i < run.size(); i += 61) {
        const ParsedDelta delta = parser.PushText(std::string_view(run).substr(i, 61));
        out += delta.content.size() + delta.reasoning.size();
        held = std::max(held, parser.position() - std::min(out, parser.position()));
      }
      const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      EXPECT_LT(seconds, 5.0) << unit;                               // under a sanitizer; else 0.02
      const bool is_orphan = unit == "</: parameter>" && !thinking;  // dropped, not held
      EXPECT_TRUE(is_orphan || held <= 192) << unit << " " << held;
      parser.Finish(CompletionEnd::kStop);
    }
  }
}

TEST(CompletionParser, TagWithoutEndIsHeldUpToALimit) {
  CompletionParser parser({.starts_in_reasoning = false, .tools = Tools()});
  const std::string text = Marked("<: invoke name=\"") + std::string(size_t{1} << 16, 'x');
  EXPECT_EQ(parser.PushText(text).content, text);
  EXPECT_EQ(parser.PushText("y").content, "y");
}

TEST(SplitToolName, SplitsAtTheFirstSeparator) {
  const auto split = [](std::string_view written) {
    const ToolName name = SplitToolName(written);
    return std::pair(name.name_space, name.name);
  };
  EXPECT_EQ(split("a::b"), std::pair(std::string("a"), std::string("b")));
  EXPECT_EQ(split("a::b::c"), std::pair(std::string("a"), std::string("b::c")));
  EXPECT_EQ(split("a:b"), std::pair(std::string(), std::string("a:b")));
}

}  // namespace
}  // namespace millrace::text
