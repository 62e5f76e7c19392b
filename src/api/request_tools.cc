#include "api/request_tools.h"

#include <utility>

namespace millrace::api {

namespace {

// Of a tool's entries in the tables by name, and of a property's.
constexpr size_t kToolBytes = 400;
constexpr size_t kPropertyBytes = 80;

size_t BytesOf(const RequestTools::Tool& tool) {
  size_t bytes = kToolBytes + 4 * tool.schema.name.size();
  for (const auto& [key, takes_string] : tool.schema.takes_string) bytes += kPropertyBytes + key.size();
  for (const std::string& key : tool.schema.required) bytes += kPropertyBytes + key.size();
  return bytes;
}

}  // namespace

RequestTools::RequestTools(std::vector<Tool> tools, bool namespaces) : namespaces_(namespaces) {
  std::vector<text::ToolSchema> schemas;
  for (Tool& tool : tools) {
    bytes_ += BytesOf(tool);
    written_names_.push_back(tool.schema.name);
    client_names_.insert_or_assign(tool.schema.name, std::move(tool.client_name));
    schemas.push_back(std::move(tool.schema));
  }
  schemas_ = std::make_shared<const text::ToolSchemas>(std::move(schemas));
}

text::ToolName RequestTools::ClientName(const std::string& written) const {
  const auto declared = client_names_.find(written);
  if (declared != client_names_.end()) return declared->second;
  return namespaces_ ? text::SplitToolName(written) : text::ToolName{.name_space = "", .name = written};
}

}  // namespace millrace::api
