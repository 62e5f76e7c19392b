#include "text/tool_declaration.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "formats/json.h"

namespace millrace::text {
namespace {

struct Namespace {
  std::string name;         // empty: none
  std::string description;  // empty: none
};

std::string StringMember(const OrderedJson& object, std::string_view key) {
  const OrderedJson* const value = object.Find(key);
  const std::string* const text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? "" : *text;
}

// A string, or an object with a name and perhaps a description.
Result<Namespace> ReadNamespace(const OrderedJson* field) {
  if (field == nullptr || field->is_null()) return Namespace{};
  if (const std::string* const name = field->if_string()) return Namespace{.name = *name, .description = ""};
  Namespace read{.name = StringMember(*field, "name"), .description = StringMember(*field, "description")};
  if (!read.name.empty()) return read;
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("a tool's namespace is {}; expected a string or {{\"name\", \"description\"}}",
                           formats::Clipped(PythonJson(*field))));
}

Error BadName(std::string_view name, std::string_view space, std::string_view why) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("the tool name {} with namespace {} {}; use one namespace and a name without "
                           "\"::\"",
                           formats::Quoted(name), formats::Quoted(space), why));
}

// A name may bring its namespace along; then it must be the same as the one given beside it.
Result<std::string> JoinName(std::string_view name, std::string_view space) {
  std::string_view bare = name;
  std::string_view prefix = space;
  if (const size_t at = name.find(kNamespaceSeparator); at != std::string_view::npos) {
    prefix = name.substr(0, at);
    bare = name.substr(at + kNamespaceSeparator.size());
    if (!space.empty() && space != prefix) return BadName(name, space, "names two different namespaces");
  }
  if (bare.find(kNamespaceSeparator) != std::string_view::npos ||
      prefix.find(kNamespaceSeparator) != std::string_view::npos) {
    return BadName(name, space, "holds \"::\" more than once");
  }
  if (prefix.empty()) return std::string(name);
  return fmt::format("{}{}{}", prefix, kNamespaceSeparator, bare);
}

// The function object without its namespace field, with the joined name, and with the namespace's description
// in front of its own.
OrderedJson::Object Qualified(const OrderedJson::Object& function, const std::string& name,
                              const std::string& description) {
  OrderedJson::Object members;
  bool described = description.empty();
  for (const OrderedJson::Member& member : function) {
    if (member.key == "namespace") continue;
    if (member.key == "name") {
      members.push_back({member.key, OrderedJson(name)});
    } else if (member.key == "description" && !description.empty()) {
      const std::string* const own = member.value.if_string();
      members.push_back({member.key, OrderedJson(description + "\n" + (own == nullptr ? "" : *own))});
      described = true;
    } else {
      members.push_back(member);
    }
  }
  if (!described) members.push_back({"description", OrderedJson(description + "\n")});
  return members;
}

}  // namespace

Result<ToolDeclaration> DeclareTool(const OrderedJson& function, const OrderedJson* tool_namespace,
                                    ChatModel model) {
  const OrderedJson::Object* const members = function.if_object();
  const std::string name = StringMember(function, "name");
  if (members == nullptr || name.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a tool's function is {}; expected an object with a \"name\"",
                             formats::Clipped(PythonJson(function))));
  }
  ToolDeclaration tool{.name = name};
  if (const OrderedJson* const parameters = function.Find("parameters")) tool.parameters = *parameters;
  if (model == ChatModel::kV4) {
    tool.json_line = PythonJson(function);
    return tool;
  }
  const bool on_tool = tool_namespace != nullptr && !tool_namespace->is_null();
  MILLRACE_ASSIGN_OR_RETURN(const Namespace space,
                            ReadNamespace(on_tool ? tool_namespace : function.Find("namespace")));
  MILLRACE_ASSIGN_OR_RETURN(tool.name, JoinName(name, space.name));
  tool.json_line = PythonJson(OrderedJson(Qualified(*members, tool.name, space.description)));
  return tool;
}

Result<std::string> WrittenCallName(std::string_view name, const OrderedJson* call_namespace,
                                    ChatModel model) {
  if (model == ChatModel::kV4) return std::string(name);
  MILLRACE_ASSIGN_OR_RETURN(const Namespace space, ReadNamespace(call_namespace));
  if (space.name.empty()) return std::string(name);
  return JoinName(name, space.name);
}

}  // namespace millrace::text
