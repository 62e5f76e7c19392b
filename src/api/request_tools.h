#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/tool_schema.h"

namespace millrace::api {

// The tools that a request declares, for the parser of the answer and for giving their names back in the
// client's own spelling. Immutable; any thread.
class RequestTools {
 public:
  struct Tool {
    text::ToolSchema schema;     // its name is the one written in the prompt
    text::ToolName client_name;  // how the client declared it: a plain "ns::name" comes back unsplit
  };
  // `namespaces`: whether the model knows them (V4.1 does).
  RequestTools(std::vector<Tool> tools, bool namespaces);

  const std::shared_ptr<const text::ToolSchemas>& schemas() const { return schemas_; }
  bool Declares(const std::string& written) const { return client_names_.contains(written); }
  // The names of all tools as written, in the order of their declaration.
  const std::vector<std::string>& written_names() const { return written_names_; }
  // What the object takes, nearly.
  size_t bytes() const { return bytes_; }
  // What a client is told of a call to `written`; of a tool that it did not declare, the name in parts.
  text::ToolName ClientName(const std::string& written) const;

 private:
  std::vector<std::string> written_names_;
  std::unordered_map<std::string, text::ToolName> client_names_;  // by written name
  std::shared_ptr<const text::ToolSchemas> schemas_;
  bool namespaces_;
  size_t bytes_ = 0;
};

}  // namespace millrace::api
