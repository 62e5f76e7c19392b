#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "api/field_reader.h"
#include "api/requests.h"
#include "text/chat_model.h"
#include "text/ordered_json.h"
#include "text/tool_declaration.h"

namespace millrace::api {

// Collects the tools that a request declares, whatever its dialect.
class ToolList {
 public:
  ToolList(text::ChatModel model, FirstError& error) : model_(model), error_(error) {}

  // `function` is the function object of OpenAI's form and `tool_namespace` the tool's own field, nullptr
  // without one. `path` of the tool names it in errors: no name, a name that the format cannot write, one
  // used twice.
  void Add(const text::OrderedJson& function, const text::OrderedJson* tool_namespace,
           const std::string& path);
  // Makes the tools those of `request`; nothing was added: it has none. Call once.
  void MoveTo(ChatCompletionRequest& request);

 private:
  text::ChatModel model_;
  FirstError& error_;
  std::vector<text::ToolDeclaration> declared_;
  std::vector<RequestTools::Tool> tools_;
  std::unordered_set<std::string> written_;
};

// The choice of the tool that a client calls `name`, with its namespace field or nullptr; `path` names the
// field that names it.
ToolChoice NamedTool(const std::string& name, const text::OrderedJson* tool_namespace, text::ChatModel model,
                     const std::string& path, FirstError& error);

// A choice that asks for a call needs a declared tool; `path` names the choice.
void CheckToolChoice(const ChatCompletionRequest& request, const std::string& path, FirstError& error);

}  // namespace millrace::api
