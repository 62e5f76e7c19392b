#include "api/declare_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace millrace::api {
namespace {

// The format writes a name raw between quotes.
bool CanBeWritten(const std::string& name) {
  return std::ranges::none_of(name, [](char c) { return c == '"' || static_cast<unsigned char>(c) < 0x20; });
}

// A client that gave the namespace apart gets it back apart; a plain qualified name comes back as it was.
text::ToolName ClientName(const std::string& written, bool has_namespace) {
  return has_namespace ? text::SplitToolName(written) : text::ToolName{.name_space = "", .name = written};
}

}  // namespace

void ToolList::Add(const text::OrderedJson& function, const text::OrderedJson* tool_namespace,
                   const std::string& path) {
  if (error_.set()) return;
  Result<text::ToolDeclaration> declared = text::DeclareTool(function, tool_namespace, model_);
  if (!declared.ok()) {
    return error_.Set(ApiErrorKind::kInvalidValue,
                      fmt::format("Invalid value for '{}': {}.", path, declared.error().message()), path);
  }
  const std::string name = declared->name;
  if (!CanBeWritten(name)) {
    return error_.Set(ApiErrorKind::kInvalidValue,
                      fmt::format("Invalid value for '{}': a tool's name must not have quotes or control "
                                  "characters.",
                                  path),
                      path);
  }
  if (!written_.insert(name).second) {
    return error_.Set(
        ApiErrorKind::kInvalidValue,
        fmt::format("Invalid value for '{}': a second tool of the name \"{}\". Give every tool a "
                    "name of its own.",
                    path, name),
        path);
  }
  const text::OrderedJson* const own = function.Find("namespace");
  const bool has_namespace =
      model_ == text::ChatModel::kV41 &&
      ((tool_namespace != nullptr && !tool_namespace->is_null()) || (own != nullptr && !own->is_null()));
  tools_.push_back({text::ToolSchema::Of(name, declared->parameters), ClientName(name, has_namespace)});
  declared_.push_back(std::move(declared).value());
}

void ToolList::MoveTo(ChatCompletionRequest& request) {
  if (tools_.empty()) return;
  request.chat.tools = std::move(declared_);
  request.tools =
      std::make_shared<const RequestTools>(std::move(tools_), /*namespaces=*/model_ == text::ChatModel::kV41);
}

ToolChoice NamedTool(const std::string& name, const text::OrderedJson* tool_namespace, text::ChatModel model,
                     const std::string& path, FirstError& error) {
  Result<std::string> written = text::WrittenCallName(name, tool_namespace, model);
  if (written.ok()) return {ToolChoice::Kind::kNamed, std::move(written).value()};
  error.Set(ApiErrorKind::kInvalidValue,
            fmt::format("Invalid value for '{}': {}.", path, written.error().message()), path);
  return {};
}

void CheckToolChoice(const ChatCompletionRequest& request, const std::string& path, FirstError& error) {
  using Kind = ToolChoice::Kind;
  const ToolChoice& choice = request.tool_choice;
  if (choice.kind != Kind::kRequired && choice.kind != Kind::kNamed) return;
  if (!request.tools) {
    error.Set(
        ApiErrorKind::kInvalidValue,
        fmt::format("'{}' asks for a call, but no tools are declared. Send 'tools', or \"auto\".", path),
        path);
  } else if (choice.kind == Kind::kNamed && !request.tools->Declares(choice.name)) {
    error.Set(
        ApiErrorKind::kInvalidValue,
        fmt::format(
            "'{}' asks for the tool \"{}\", which is not declared. Declare it in 'tools' or name another.",
            path, choice.name.substr(0, 100)),
        path);
  }
}

}  // namespace millrace::api
