#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "text/completion_parser_testing.h"
#include "text/golden_testing.h"

namespace millrace::text {
namespace {

namespace json = boost::json;

std::shared_ptr<const ToolSchemas> DeclaredTools(const json::value& file) {
  std::vector<ToolSchema> tools;
  for (const auto& [name, schema] : file.at("declared_tools").as_object()) {
    const auto parameters = ParseOrderedJson(json::serialize(schema));
    EXPECT_TRUE(parameters.ok());
    tools.push_back(ToolSchema::Of(name, *parameters));
  }
  return std::make_shared<const ToolSchemas>(std::move(tools));
}

void ExpectCall(const ParsedCall& call, const json::object& expected, bool split_name) {
  const auto name_space = expected.if_contains("namespace");
  const ToolName name = split_name ? SplitToolName(call.name) : ToolName{.name_space = {}, .name = call.name};
  EXPECT_EQ(name.name, String(expected.at("name")));
  EXPECT_EQ(name.name_space, name_space ? String(*name_space) : "");
  const auto complete = expected.if_contains("complete");
  ASSERT_EQ(call.complete, complete == nullptr || complete->as_bool());
  if (!call.complete) {
    EXPECT_TRUE(String(expected.at("arguments_text_is_prefix_of")).starts_with(call.arguments))
        << call.arguments;
    return;
  }
  const auto arguments = ParseOrderedJson(call.arguments);
  ASSERT_TRUE(arguments.ok()) << call.arguments << ": " << arguments.error().message();
  EXPECT_EQ(*arguments, *ParseOrderedJson(json::serialize(expected.at("arguments")))) << call.arguments;
}

void ExpectResult(const ParseResult& result, const json::object& expected, bool split_names) {
  EXPECT_EQ(result.message.reasoning, String(expected.at("reasoning")));
  EXPECT_EQ(result.message.content, String(expected.at("content")));
  const char* const kReasons[] = {"stop", "length", "tool_calls"};
  EXPECT_EQ(kReasons[static_cast<int>(result.reason)], String(expected.at("finish_reason")));
  const json::array& calls = expected.at("tool_calls").as_array();
  ASSERT_EQ(result.message.calls.size(), calls.size());
  for (size_t i = 0; i < calls.size(); ++i)
    ExpectCall(result.message.calls[i], calls[i].as_object(), split_names);
}

class CompletionParserGolden : public GoldenTest {};

TEST_F(CompletionParserGolden, ParsesEveryCompletionHoweverItIsCut) {
  const json::value file = ReadJson(GoldenDir() / "chat/parse.json");
  const auto tools = DeclaredTools(file);
  const json::array& cases = file.at("cases").as_array();
  ASSERT_EQ(cases.size(), 82u);
  for (const json::value& golden : cases) {
    SCOPED_TRACE(golden.at("id"));
    const ParseCase c{.completion = String(golden.at("completion")),
                      .thinking = golden.at("thinking").as_bool(),
                      .tools = golden.at("tools_declared").as_bool() ? tools : nullptr,
                      .end = golden.at("finish") == "length" ? CompletionEnd::kLength : CompletionEnd::kStop};
    const ParseResult whole = ParseCut(c, {});
    ExpectResult(whole, golden.at("expected").as_object(), golden.at("model") == "v4.1");
    EXPECT_EQ(ParseCut(c, EveryByte(c.completion)), whole);
    EXPECT_EQ(ParseCut(c, EveryCharacter(c.completion)), whole);
    ASSERT_EQ(golden.at("splits_bytes").as_array().size(), 3u);
    for (const json::value& cuts : golden.at("splits_bytes").as_array()) {
      std::vector<size_t> offsets;
      for (const json::value& cut : cuts.as_array()) offsets.push_back(static_cast<size_t>(cut.as_int64()));
      EXPECT_EQ(ParseCut(c, offsets), whole);
    }
  }
}

// The same letters as tokens: control tokens by their ids. Cases whose marks are spelled otherwise included.
TEST_F(CompletionParserGolden, ParsesTheSameFromTokens) {
  const json::value file = ReadJson(GoldenDir() / "chat/parse.json");
  const auto tools = DeclaredTools(file);
  const auto ids = ControlIds::Find(Released());
  ASSERT_TRUE(ids.ok());
  for (const json::value& golden : file.at("cases").as_array()) {
    SCOPED_TRACE(golden.at("id"));
    const std::string completion = String(golden.at("completion"));
    CompletionParser parser(Released(), *ids,
                            {.starts_in_reasoning = golden.at("thinking").as_bool(),
                             .tools = golden.at("tools_declared").as_bool() ? tools : nullptr});
    DeltaChecker checker(completion);
    for (const TokenId id : Released().EncodePrompt(completion)) checker.Add(parser.Push(id));
    checker.Add(
        parser.Finish(golden.at("finish") == "length" ? CompletionEnd::kLength : CompletionEnd::kStop));
    EXPECT_EQ(checker.error(), nullptr) << checker.error();
    EXPECT_EQ(parser.position(), completion.size());
    ExpectResult({.message = checker.message(), .reason = parser.reason()}, golden.at("expected").as_object(),
                 golden.at("model") == "v4.1");
  }
}

}  // namespace
}  // namespace millrace::text
