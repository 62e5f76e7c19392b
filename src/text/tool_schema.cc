#include "text/tool_schema.h"

#include <algorithm>
#include <utility>

#include "text/tool_declaration.h"

namespace millrace::text {
namespace {

bool DeclaresString(const OrderedJson* type) {
  if (type == nullptr) return false;
  if (const std::string* name = type->if_string()) return *name == "string";
  const OrderedJson::Array* names = type->if_array();
  if (names == nullptr) return false;
  const auto is = [](const OrderedJson& item, std::string_view name) {
    return item.if_string() != nullptr && *item.if_string() == name;
  };
  return std::ranges::any_of(*names, [&](const OrderedJson& item) { return is(item, "string"); }) &&
         std::ranges::all_of(*names,
                             [&](const OrderedJson& item) { return is(item, "string") || is(item, "null"); });
}

}  // namespace

ToolName SplitToolName(std::string_view written) {
  const size_t at = written.find(kNamespaceSeparator);
  if (at == std::string_view::npos) return {.name_space = {}, .name = std::string(written)};
  return {.name_space = std::string(written.substr(0, at)),
          .name = std::string(written.substr(at + kNamespaceSeparator.size()))};
}

ToolSchema ToolSchema::Of(std::string name, const OrderedJson& parameters) {
  ToolSchema schema{.name = std::move(name), .takes_string = {}, .required = {}};
  if (const OrderedJson* properties = parameters.Find("properties");
      properties != nullptr && properties->if_object() != nullptr) {
    for (const auto& [key, property] : *properties->if_object()) {
      schema.takes_string[key] = DeclaresString(property.Find("type"));
    }
  }
  if (const OrderedJson* required = parameters.Find("required");
      required != nullptr && required->if_array() != nullptr) {
    for (const OrderedJson& key : *required->if_array()) {
      if (const std::string* text = key.if_string()) schema.required.push_back(*text);
    }
  }
  return schema;
}

bool ToolSchema::TakesString(const std::string& key) const {
  const auto found = takes_string.find(key);
  return found != takes_string.end() && found->second;
}

bool ToolSchema::Fits(const OrderedJson& arguments) const {
  const OrderedJson::Object* members = arguments.if_object();
  if (members == nullptr) return false;
  return std::ranges::all_of(*members, [&](const auto& member) { return HasProperty(member.key); }) &&
         std::ranges::all_of(required,
                             [&](const std::string& key) { return arguments.Find(key) != nullptr; });
}

ToolSchemas::ToolSchemas(std::vector<ToolSchema> tools) {
  for (ToolSchema& tool : tools) {
    std::string name = tool.name;
    tools_.insert_or_assign(std::move(name), std::move(tool));
  }
}

const ToolSchema* ToolSchemas::Find(const std::string& name) const {
  const auto found = tools_.find(name);
  return found == tools_.end() ? nullptr : &found->second;
}

}  // namespace millrace::text
