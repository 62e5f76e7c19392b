#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/standard_input.h"
#include "formats/json.h"
#include "text/completion_parser.h"
#include "text/ordered_json.h"
#include "text/parsed_message.h"

namespace millrace::app {
namespace {

using text::CompletionEnd;
using text::CompletionParser;
using text::CompletionReason;
using text::OrderedJson;
using text::ParsedCall;
using text::ParsedMessage;
using text::ToolSchemas;

struct Parsed {
  ParsedMessage message;
  CompletionReason reason{};

  bool operator==(const Parsed&) const = default;
};

// One case of a file of the golden format (chat encoding, section 14).
struct ParseCase {
  OrderedJson id;
  std::string completion;
  bool split_names = true;  // "ns::name", which V4 does not know
  CompletionParser::Options options;
  CompletionEnd end = CompletionEnd::kStop;
  std::vector<std::vector<size_t>> splits;  // byte offsets, ascending
};

Error Wrong(std::string_view field, const OrderedJson* value, std::string_view expected) {
  return Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} is {}, expected {}", field,
                  value == nullptr ? "missing" : formats::Clipped(text::PythonJson(*value)), expected));
}

Result<std::string> StringField(const OrderedJson& item, std::string_view key) {
  const OrderedJson* value = item.Find(key);
  if (value == nullptr || value->if_string() == nullptr) return Wrong(key, value, "a string");
  return *value->if_string();
}

Result<bool> BoolField(const OrderedJson& item, std::string_view key) {
  const OrderedJson* value = item.Find(key);
  if (value == nullptr || value->if_bool() == nullptr) return Wrong(key, value, "true or false");
  return *value->if_bool();
}

// Offsets at which to cut a completion of `size` bytes.
Result<std::vector<size_t>> ReadSplit(const OrderedJson& split, size_t size) {
  std::vector<size_t> cuts;
  if (split.if_array() == nullptr) return Wrong("splits_bytes", &split, "a list of lists of offsets");
  for (const OrderedJson& item : *split.if_array()) {
    const OrderedJson::Number* number = item.if_number();
    size_t cut = 0;
    if (number != nullptr) {
      const std::string& digits = number->text;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), cut);
      if (error != std::errc() || end != digits.data() + digits.size()) number = nullptr;
    }
    if (number == nullptr || cut > size || (!cuts.empty() && cut < cuts.back())) {
      return Wrong("an offset of splits_bytes", &item, fmt::format("ascending offsets up to {}", size));
    }
    cuts.push_back(cut);
  }
  return cuts;
}

Result<ParseCase> ReadCase(const OrderedJson& item, const std::shared_ptr<const ToolSchemas>& tools) {
  ParseCase c;
  if (const OrderedJson* id = item.Find("id")) c.id = *id;
  MILLRACE_ASSIGN_OR_RETURN(c.completion, StringField(item, "completion"));
  MILLRACE_ASSIGN_OR_RETURN(c.options.starts_in_reasoning, BoolField(item, "thinking"));
  MILLRACE_ASSIGN_OR_RETURN(const bool declared, BoolField(item, "tools_declared"));
  if (declared) c.options.tools = tools;
  MILLRACE_ASSIGN_OR_RETURN(const std::string finish, StringField(item, "finish"));
  if (finish != "stop" && finish != "length")
    return Wrong("finish", item.Find("finish"), "\"stop\" or \"length\"");
  if (finish == "length") c.end = CompletionEnd::kLength;
  if (item.Find("model") != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string model, StringField(item, "model"));
    if (model != "v4" && model != "v4.1") return Wrong("model", item.Find("model"), "\"v4.1\" or \"v4\"");
    c.split_names = model == "v4.1";
  }
  const OrderedJson* splits = item.Find("splits_bytes");
  if (splits == nullptr) return c;
  if (splits->if_array() == nullptr) return Wrong("splits_bytes", splits, "a list of lists of offsets");
  for (const OrderedJson& split : *splits->if_array()) {
    MILLRACE_ASSIGN_OR_RETURN(std::vector<size_t> cuts, ReadSplit(split, c.completion.size()));
    c.splits.push_back(std::move(cuts));
  }
  return c;
}

std::shared_ptr<const ToolSchemas> ReadTools(const OrderedJson& file) {
  std::vector<text::ToolSchema> tools;
  const OrderedJson* declared = file.Find("declared_tools");
  if (declared != nullptr && declared->if_object() != nullptr) {
    for (const auto& [name, schema] : *declared->if_object()) {
      tools.push_back(text::ToolSchema::Of(name, schema));
    }
  }
  return std::make_shared<const ToolSchemas>(std::move(tools));
}

// Parses the completion cut at `cuts`.
Parsed Parse(const ParseCase& c, const std::vector<size_t>& cuts) {
  CompletionParser parser(c.options);
  ParsedMessage message;
  std::string_view rest = c.completion;
  size_t done = 0;
  for (const size_t cut : cuts) {
    message.Append(parser.PushText(rest.substr(0, cut - done)));
    rest.remove_prefix(cut - done);
    done = cut;
  }
  message.Append(parser.PushText(rest));
  message.Append(parser.Finish(c.end));
  return {.message = std::move(message), .reason = parser.reason()};
}

// Byte by byte, and checked against the other cuts.
Result<Parsed> ParseEveryWay(const ParseCase& c) {
  std::vector<size_t> every_byte;
  for (size_t i = 1; i < c.completion.size(); ++i) every_byte.push_back(i);
  Parsed parsed = Parse(c, every_byte);
  std::vector<std::vector<size_t>> others = c.splits;
  others.emplace_back();
  for (const std::vector<size_t>& cuts : others) {
    if (Parse(c, cuts) == parsed) continue;
    return Error(ErrorCode::kMismatch,
                 fmt::format("cut at {} places the completion parses otherwise than byte by byte: this is a "
                             "fault of millrace, please report it with the case",
                             cuts.size()));
  }
  return parsed;
}

OrderedJson Text(std::string_view text) {
  return OrderedJson(std::string(text));
}

Result<OrderedJson> CallJson(const ParsedCall& call, bool split_name) {
  const text::ToolName name =
      split_name ? text::SplitToolName(call.name) : text::ToolName{.name_space = {}, .name = call.name};
  OrderedJson::Object object{{.key = "name", .value = Text(name.name)}};
  if (!name.name_space.empty()) object.push_back({.key = "namespace", .value = Text(name.name_space)});
  if (call.complete) {
    MILLRACE_ASSIGN_OR_RETURN(OrderedJson arguments, text::ParseOrderedJson(call.arguments));
    object.push_back({.key = "arguments", .value = std::move(arguments)});
  } else {
    object.push_back({.key = "complete", .value = OrderedJson(false)});
    object.push_back({.key = "arguments_text", .value = Text(call.arguments)});
  }
  return OrderedJson(std::move(object));
}

std::string_view Name(CompletionReason reason) {
  switch (reason) {
    case CompletionReason::kStop:
      return "stop";
    case CompletionReason::kLength:
      return "length";
    case CompletionReason::kToolCalls:
      return "tool_calls";
  }
  return "stop";
}

Result<OrderedJson> ResultJson(const ParseCase& c) {
  MILLRACE_ASSIGN_OR_RETURN(const Parsed parsed, ParseEveryWay(c));
  OrderedJson::Array calls;
  for (const ParsedCall& call : parsed.message.calls) {
    MILLRACE_ASSIGN_OR_RETURN(OrderedJson json, CallJson(call, c.split_names));
    calls.push_back(std::move(json));
  }
  return OrderedJson(OrderedJson::Object{{.key = "reasoning", .value = Text(parsed.message.reasoning)},
                                         {.key = "content", .value = Text(parsed.message.content)},
                                         {.key = "tool_calls", .value = OrderedJson(std::move(calls))},
                                         {.key = "finish_reason", .value = Text(Name(parsed.reason))}});
}

Status ParseChat() {
  MILLRACE_ASSIGN_OR_RETURN(const std::string input, ReadStandardInput());
  const Result<OrderedJson> file = text::ParseOrderedJson(input, {.max_bytes = kMaxInputBytes});
  if (!file.ok()) return file.error().In("standard input");
  const OrderedJson* cases = file->if_array() != nullptr ? &*file : file->Find("cases");
  if (cases == nullptr || cases->if_array() == nullptr) {
    return Error(
        ErrorCode::kInvalidArgument,
        "standard input: expected {\"declared_tools\": {...}, \"cases\": [...]} or an array of cases");
  }
  const auto tools = ReadTools(*file);
  const char* separator = "[\n";
  for (const OrderedJson& item : *cases->if_array()) {
    const Result<ParseCase> c = ReadCase(item, tools);
    Result<OrderedJson> result = c.ok() ? ResultJson(*c) : c.error();
    if (!result.ok()) {
      const OrderedJson* id = item.Find("id");
      return result.error().In(fmt::format("case {}", id == nullptr ? "without id" : text::PythonJson(*id)));
    }
    const OrderedJson line(
        OrderedJson::Object{{.key = "id", .value = c->id}, {.key = "result", .value = *std::move(result)}});
    fmt::print("{}{}", separator, text::PythonJson(line));
    separator = ",\n";
  }
  fmt::print("{}\n", cases->if_array()->empty() ? "[]" : "\n]");
  if (std::fflush(stdout) != 0) return Error(ErrorCode::kIo, "cannot write standard output");
  return {};
}

}  // namespace

void AddParseChatCommand(CLI::App& root, Invocation& invocation) {
  CLI::App* command = root.add_subcommand(
      "parse-chat",
      "Read completions as JSON from standard input, print reasoning, content and calls as JSON");
  command->footer(
      "Input: {\"declared_tools\": {NAME: SCHEMA, ...}, \"cases\": [{\"id\", \"completion\", \"thinking\",\n"
      "\"tools_declared\", \"finish\", \"model\"?, \"splits_bytes\"?}, ...]}. Output: [{\"id\", \"result\":\n"
      "{\"reasoning\", \"content\", \"tool_calls\", \"finish_reason\"}}, ...]. A call that the completion "
      "leaves\n"
      "incomplete has \"complete\": false and, as \"arguments_text\", what a stream would have sent of it.\n"
      "Every completion is parsed byte by byte, whole, and cut at the given offsets; all must agree.");
  command->callback([&invocation] { invocation.run = [] { return ReportStatus(ParseChat()); }; });
}

}  // namespace millrace::app
