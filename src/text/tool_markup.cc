#include "text/tool_markup.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

namespace millrace::text {
namespace {

constexpr std::string_view kMark = "｜DSML｜";
constexpr std::string_view kThinkBegin = "<think>";
constexpr std::string_view kThinkEnd = "</think>";

constexpr std::string_view kDeclarationsHead =
    R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜{calls}>" block like the following:

<｜DSML｜{calls}>
<｜DSML｜{invoke} name="$TOOL_NAME">
<｜DSML｜{parameter} name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜{parameter}>
...
</｜DSML｜{invoke}>
<｜DSML｜{invoke} name="$TOOL_NAME2">
...
</｜DSML｜{invoke}>
</｜DSML｜{calls}>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";

constexpr std::string_view kDeclarationsTail =
    "\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

// The argument object of a call; nullopt if its text is something else and counts as one string. Only V4.1
// looks into a JSON text that is itself the content of a JSON string.
std::optional<OrderedJson> ArgumentObject(ChatModel model, const std::string& arguments) {
  if (arguments.find_first_not_of(" \t\r\n") == std::string::npos) return OrderedJson(OrderedJson::Object());
  Result<OrderedJson> value = ParseOrderedJson(arguments);
  if (model == ChatModel::kV41 && value.ok() && value->if_string() != nullptr) {
    value = ParseOrderedJson(*value->if_string());
  }
  if (!value.ok() || value->if_object() == nullptr) return std::nullopt;
  return *std::move(value);
}

}  // namespace

ToolTags TagsOf(ChatModel model) {
  if (model == ChatModel::kV4) return {.calls = "tool_calls", .invoke = "invoke", .parameter = "parameter"};
  return {.calls = " calls", .invoke = " invoke", .parameter = " parameter"};
}

void ToolMarkupWriter::WriteDeclarations(std::span<const ToolDeclaration* const> tools) {
  WriteOwn(fmt::format(kDeclarationsHead, fmt::arg("calls", tags_.calls), fmt::arg("invoke", tags_.invoke),
                       fmt::arg("parameter", tags_.parameter)));
  for (const ToolDeclaration* const tool : tools) {
    pieces_.AddText(tool->json_line);
    pieces_.AddText("\n");
  }
  WriteOwn(kDeclarationsTail);
}

void ToolMarkupWriter::WriteCalls(std::span<const ToolCall> calls) {
  WriteTag("<", tags_.calls);
  pieces_.AddText(">\n");
  for (const ToolCall& call : calls) WriteCall(call);
  WriteTag("</", tags_.calls);
  pieces_.AddText(">");
}

void ToolMarkupWriter::WriteOwn(std::string_view text) {
  const std::pair<std::string_view, TokenId> controls[] = {
      {kMark, ids_.dsml}, {kThinkBegin, ids_.think_begin}, {kThinkEnd, ids_.think_end}};
  while (!text.empty()) {
    size_t at = text.size();
    const std::pair<std::string_view, TokenId>* next = nullptr;
    for (const auto& control : controls) {
      const size_t found = text.find(control.first);
      if (found >= at) continue;
      at = found;
      next = &control;
    }
    pieces_.AddText(text.substr(0, at));
    if (next == nullptr) return;
    pieces_.AddControl(next->second);
    text.remove_prefix(at + next->first.size());
  }
}

void ToolMarkupWriter::WriteCall(const ToolCall& call) {
  WriteTag("<", tags_.invoke);
  pieces_.AddText(" name=\"");
  pieces_.AddText(call.name);
  pieces_.AddText("\">\n");
  const std::optional<OrderedJson> arguments = ArgumentObject(model_, call.arguments);
  if (!arguments) {
    WriteParameter("arguments", call.arguments, true);
  } else if (arguments->if_object()->empty()) {
    pieces_.AddText("\n");
  } else {
    for (const OrderedJson::Member& member : *arguments->if_object()) {
      const std::string* const text = member.value.if_string();
      WriteParameter(member.key, text != nullptr ? *text : PythonJson(member.value), text != nullptr);
    }
  }
  WriteTag("</", tags_.invoke);
  pieces_.AddText(">\n");
}

void ToolMarkupWriter::WriteParameter(std::string_view key, std::string_view value, bool is_string) {
  WriteTag("<", tags_.parameter);
  pieces_.AddText(" name=\"");
  pieces_.AddText(key);
  pieces_.AddText(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
  pieces_.AddText(value);
  WriteTag("</", tags_.parameter);
  pieces_.AddText(">\n");
}

void ToolMarkupWriter::WriteTag(std::string_view bracket, std::string_view name) {
  pieces_.AddText(bracket);
  pieces_.AddControl(ids_.dsml);
  pieces_.AddText(name);
}

}  // namespace millrace::text
