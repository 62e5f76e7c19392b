#include "api/responses_tools.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "api/custom_tool_input.h"
#include "api/declare_tools.h"
#include "text/tool_declaration.h"

namespace millrace::api {
namespace {

using Object = text::OrderedJson::Object;

text::OrderedJson Json(std::string_view text) {
  return text::OrderedJson(std::string(text));
}

void CopyMember(const text::OrderedJson& from, std::string_view key, Object& to) {
  const text::OrderedJson* const value = from.Find(key);
  if (value != nullptr && !value->is_null()) to.push_back({std::string(key), *value});
}

// "strict" and the like say nothing to the model.
text::OrderedJson FunctionOf(const text::OrderedJson& tool) {
  Object function;
  for (const std::string_view key : {"name", "description", "parameters"}) CopyMember(tool, key, function);
  return text::OrderedJson(std::move(function));
}

// The grammar of a custom tool's text, in words: nothing else would tell the model of it.
std::string GrammarText(const text::OrderedJson& tool) {
  const text::OrderedJson* const format = tool.Find("format");
  if (format == nullptr) return "";
  const auto member = [&](std::string_view key) {
    const text::OrderedJson* const value = format->Find(key);
    return value != nullptr && value->if_string() != nullptr ? *value->if_string() : std::string();
  };
  if (member("type") != "grammar") return "";
  return fmt::format("The text must match this {} grammar:\n{}", member("syntax"), member("definition"));
}

text::OrderedJson CustomFunctionOf(const text::OrderedJson& tool) {
  Object input;
  input.push_back({"type", Json("string")});
  if (std::string grammar = GrammarText(tool); !grammar.empty())
    input.push_back({"description", Json(grammar)});
  const std::string key(kCustomToolInputKey);
  Object properties;
  properties.push_back({key, text::OrderedJson(std::move(input))});
  Object parameters;
  parameters.push_back({"type", Json("object")});
  parameters.push_back({"properties", text::OrderedJson(std::move(properties))});
  parameters.push_back({"required", text::OrderedJson(text::OrderedJson::Array{Json(key)})});
  Object function;
  for (const std::string_view copied : {"name", "description"}) CopyMember(tool, copied, function);
  function.push_back({"parameters", text::OrderedJson(std::move(parameters))});
  return text::OrderedJson(std::move(function));
}

// The namespace field of a group's tools.
text::OrderedJson NamespaceOf(const text::OrderedJson& group) {
  Object field;
  for (const std::string_view key : {"name", "description"}) CopyMember(group, key, field);
  return text::OrderedJson(std::move(field));
}

// Reads a list of tools, one level of groups deep.
class ToolReader {
 public:
  // `allowed`: the written names of those to be read; nullptr: all.
  ToolReader(text::ChatModel model, const std::set<std::string>* allowed, FirstError& error,
             ResponsesRequest& request)
      : model_(model), allowed_(allowed), error_(error), request_(request), list_(model, error) {}

  void ReadList(const text::OrderedJson::Array& tools, const std::string& path,
                const text::OrderedJson* name_space) {
    for (size_t i = 0; i < tools.size() && !error_.set(); ++i)
      ReadTool(tools[i], fmt::format("{}[{}]", path, i), name_space);
  }
  void MoveTo(ChatCompletionRequest& request) { list_.MoveTo(request); }

 private:
  void ReadTool(const text::OrderedJson& tool, const std::string& path, const text::OrderedJson* name_space) {
    if (tool.if_object() == nullptr) return FailType(error_, path, tool, "an object with a type");
    FieldReader reader(tool, path, error_);
    const std::optional<std::string> type = reader.String("type");
    if (error_.set()) return;
    if (!type) return FailMissing(reader, "type", "function, custom or namespace");
    const bool custom = *type == "custom";
    if (custom || *type == "function") {
      if (name_space == nullptr) name_space = reader.Find("namespace");
      Add(tool, custom, name_space, path);
    } else if (*type == "namespace" && name_space == nullptr) {
      ReadGroup(tool, reader);
    } else if (*type == "namespace") {
      FailValue(error_, reader.PathOf("type"), *tool.Find("type"), "function or custom inside a namespace");
    }
  }

  void ReadGroup(const text::OrderedJson& group, FieldReader& reader) {
    const text::OrderedJson field = NamespaceOf(group);
    const text::OrderedJson::Array* const tools = reader.Array("tools");
    if (tools != nullptr) ReadList(*tools, reader.PathOf("tools"), &field);
  }

  void Add(const text::OrderedJson& tool, bool custom, const text::OrderedJson* name_space,
           const std::string& path) {
    const text::OrderedJson* const name = tool.Find("name");
    const bool named = name != nullptr && name->if_string() != nullptr;
    const Result<std::string> written =
        text::WrittenCallName(named ? *name->if_string() : "", name_space, model_);
    if (written.ok() && allowed_ != nullptr && !allowed_->contains(*written)) return;
    list_.Add(custom ? CustomFunctionOf(tool) : FunctionOf(tool), name_space, path);
    if (written.ok() && custom) request_.custom_tools.insert(*written);
  }

  const text::ChatModel model_;
  const std::set<std::string>* const allowed_;
  FirstError& error_;
  ResponsesRequest& request_;
  ToolList list_;
};

constexpr std::string_view kChoices =
    "auto, none, required, or an object of type function, custom or allowed_tools";

// {"type": "function" | "custom", "name"}, perhaps with a "namespace".
std::optional<ToolChoice> ReadNamed(FieldReader& choice, text::ChatModel model) {
  const std::optional<std::string> name = choice.String("name");
  if (name) return NamedTool(*name, choice.Find("namespace"), model, choice.PathOf("name"), choice.error());
  FailMissing(choice, "name", "the name of a tool");
  return std::nullopt;
}

// {"type": "allowed_tools", "mode", "tools": [{"type", "name"}, ...]}
std::set<std::string> ReadAllowed(FieldReader& choice, text::ChatModel model, ToolChoice& made) {
  std::set<std::string> allowed;
  const std::optional<std::string> mode = choice.String("mode");
  if (mode && *mode != "auto" && *mode != "required")
    FailValue(choice.error(), choice.PathOf("mode"), *choice.Find("mode"), "auto or required");
  const text::OrderedJson::Array* const tools = choice.Array("tools");
  for (size_t i = 0; tools != nullptr && i < tools->size() && !choice.error().set(); ++i) {
    FieldReader tool((*tools)[i], fmt::format("{}[{}]", choice.PathOf("tools"), i), choice.error());
    const std::optional<std::string> type = tool.String("type");
    if (type != "function" && type != "custom") continue;
    if (const std::optional<ToolChoice> named = ReadNamed(tool, model)) allowed.insert(named->name);
  }
  const bool none = allowed.empty();  // but hosted ones, which we do not have
  made.kind = mode == "required" ? ToolChoice::Kind::kRequired
              : none             ? ToolChoice::Kind::kNone
                                 : ToolChoice::Kind::kAuto;
  return allowed;
}

struct Choice {
  ToolChoice tool;
  std::optional<std::set<std::string>> allowed;
};

Choice ReadChoice(FieldReader& body, text::ChatModel model) {
  using Kind = ToolChoice::Kind;
  Choice read;
  const text::OrderedJson* const choice = body.Find("tool_choice");
  if (choice == nullptr) return read;
  if (const std::string* const word = choice->if_string()) {
    if (*word == "none")
      read.tool.kind = Kind::kNone;
    else if (*word == "required")
      read.tool.kind = Kind::kRequired;
    else if (*word != "auto")
      FailValue(body.error(), "tool_choice", *choice, kChoices);
    return read;
  }
  if (choice->if_object() == nullptr) {
    FailType(body.error(), "tool_choice", *choice, kChoices);
    return read;
  }
  FieldReader object(*choice, "tool_choice", body.error());
  const std::optional<std::string> type = object.String("type");
  if (body.error().set()) return read;
  if (type == "function" || type == "custom") {
    read.tool = ReadNamed(object, model).value_or(ToolChoice{});
  } else if (type == "allowed_tools") {
    read.allowed = ReadAllowed(object, model, read.tool);
  } else {
    body.error().Set(
        ApiErrorKind::kUnsupportedField,
        fmt::format("'tool_choice.type' is {}; this server runs no tools of its own. Expected {}.",
                    type ? "\"" + type->substr(0, 100) + "\"" : "missing", kChoices),
        "tool_choice.type");
  }
  return read;
}

}  // namespace

void ReadResponsesTools(FieldReader& body, text::ChatModel model, ResponsesRequest& request) {
  const Choice choice = ReadChoice(body, model);
  request.chat.tool_choice = choice.tool;
  const bool chooses = choice.allowed && choice.tool.kind != ToolChoice::Kind::kNone;
  const std::set<std::string>* const allowed = chooses ? &*choice.allowed : nullptr;
  ToolReader reader(model, allowed, body.error(), request);
  if (const text::OrderedJson::Array* const tools = body.Array("tools"))
    reader.ReadList(*tools, "tools", nullptr);
  reader.MoveTo(request.chat);
  if (allowed != nullptr && !body.error().set()) {
    for (const std::string& name : *allowed) {
      if (request.chat.tools && request.chat.tools->Declares(name)) continue;
      body.error().Set(
          ApiErrorKind::kInvalidValue,
          fmt::format("'tool_choice.tools' allows the tool \"{}\", which is not declared. Declare it "
                      "in 'tools' or leave it out.",
                      name.substr(0, 100)),
          "tool_choice.tools");
    }
  }
  if (!body.error().set()) CheckToolChoice(request.chat, "tool_choice", body.error());
}

}  // namespace millrace::api
