#include "text/tool_declaration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace millrace::text {
namespace {

using ::testing::HasSubstr;

// `space` is the JSON of the tool's own namespace field; empty: it has none.
Result<ToolDeclaration> Declared(std::string_view function, std::string_view space = "",
                                 ChatModel model = ChatModel::kV41) {
  const OrderedJson object = *ParseOrderedJson(function);
  if (space.empty()) return DeclareTool(object, nullptr, model);
  const OrderedJson field = *ParseOrderedJson(space);
  return DeclareTool(object, &field, model);
}

std::string Line(std::string_view function, std::string_view space = "", ChatModel model = ChatModel::kV41) {
  const auto tool = Declared(function, space, model);
  return tool.ok() ? tool->json_line : tool.error().message();
}

TEST(ToolDeclaration, KeepsUnknownKeysAndTheOrderOfAll) {
  const auto tool = Declared(R"({"strict":true,"name":"f","parameters":{"b":1,"a":1.0},"x":null})");
  ASSERT_TRUE(tool.ok());
  EXPECT_EQ(tool->name, "f");
  EXPECT_EQ(tool->json_line, R"({"strict": true, "name": "f", "parameters": {"b": 1, "a": 1.0}, "x": null})");
  EXPECT_EQ(PythonJson(tool->parameters), R"({"b": 1, "a": 1.0})");
}

TEST(ToolDeclaration, ANamespaceJoinsTheNameAndItsDescriptionTheFunctions) {
  EXPECT_EQ(Line(R"({"name":"f"})", R"("ns")"), R"({"name": "ns::f"})");
  EXPECT_EQ(Line(R"({"name":"ns::f"})", R"("ns")"), R"({"name": "ns::f"})");
  EXPECT_EQ(Line(R"({"name":"ns::f"})"), R"({"name": "ns::f"})");
  EXPECT_EQ(Line(R"({"name":"f","namespace":"ns","x":1})"), R"({"name": "ns::f", "x": 1})");
  EXPECT_EQ(Line(R"({"namespace":"inner","name":"f"})", R"("outer")"), R"({"name": "outer::f"})");
  EXPECT_EQ(Line(R"({"namespace":"inner","name":"f"})", "null"), R"({"name": "inner::f"})");
  const char* const kDescribed = R"({"name":"ns","description":"D."})";
  EXPECT_EQ(Line(R"({"name":"f","description":"own","x":1})", kDescribed),
            R"({"name": "ns::f", "description": "D.\nown", "x": 1})");
  EXPECT_EQ(Line(R"({"name":"f","description":null,"x":1})", kDescribed),
            R"({"name": "ns::f", "description": "D.\n", "x": 1})");
  EXPECT_EQ(Line(R"({"name":"f","x":1})", kDescribed), R"({"name": "ns::f", "x": 1, "description": "D.\n"})");
  EXPECT_EQ(Line(R"({"name":"f","description":"own"})", R"({"name":"ns"})"),
            R"({"name": "ns::f", "description": "own"})");
}

TEST(ToolDeclaration, V4KnowsNoNamespaces) {
  EXPECT_EQ(Line(R"({"name":"a::b::c","namespace":"n"})", R"("m")", ChatModel::kV4),
            R"({"name": "a::b::c", "namespace": "n"})");
}

TEST(ToolDeclaration, WrongOnesAreRefusedWithTheirValue) {
  EXPECT_THAT(Line(R"({"name":"a::f"})", R"("b")"), HasSubstr("\"a::f\" with namespace \"b\" names two"));
  EXPECT_THAT(Line(R"({"name":"a::b::f"})"), HasSubstr("more than once"));
  EXPECT_THAT(Line(R"({"name":"f"})", R"("a::b")"), HasSubstr("more than once"));
  EXPECT_THAT(Line(R"({"name":"f"})", "7"), HasSubstr("namespace is 7"));
  EXPECT_THAT(Line(R"({"name":"f"})", R"({"description":"D"})"), HasSubstr("namespace is {"));
  EXPECT_THAT(Line(R"({"description":"D"})"), HasSubstr("expected an object with a \"name\""));
  EXPECT_THAT(Line(R"("f")"), HasSubstr("function is \"f\""));
}

TEST(ToolDeclaration, AReplayedCallIsWrittenAsItsTool) {
  const OrderedJson space("ns");
  EXPECT_EQ(*WrittenCallName("f", &space, ChatModel::kV41), "ns::f");
  EXPECT_EQ(*WrittenCallName("ns::f", &space, ChatModel::kV41), "ns::f");
  EXPECT_EQ(*WrittenCallName("f", &space, ChatModel::kV4), "f");
  EXPECT_FALSE(WrittenCallName("other::f", &space, ChatModel::kV41).ok());
  // A name that a model made up stays in the history for good: it must not cost the conversation.
  EXPECT_EQ(*WrittenCallName("a::b::c", nullptr, ChatModel::kV41), "a::b::c");
}

}  // namespace
}  // namespace millrace::text
