#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/ordered_json.h"

namespace millrace::text {

// A tool's name as the prompt shows it, in parts. V4.1 writes a namespace in front: "ns::name".
struct ToolName {
  std::string name_space;  // empty: none
  std::string name;
};
// Splits at the first "::"; a name without one has no namespace. V4 knows none: do not call it there.
ToolName SplitToolName(std::string_view written);

// What the parser of completions needs to know of a declared tool.
struct ToolSchema {
  std::string name;  // as written in the prompt
  // Whether each property of the arguments is declared as a string or as ["string", "null"].
  std::unordered_map<std::string, bool> takes_string;
  std::vector<std::string> required;

  // `parameters` is the JSON schema of the arguments; whatever is no schema declares no properties.
  static ToolSchema Of(std::string name, const OrderedJson& parameters);

  bool HasProperty(const std::string& key) const { return takes_string.contains(key); }
  bool TakesString(const std::string& key) const;
  // `arguments` is an object, every key of it a property, and every required key is there.
  bool Fits(const OrderedJson& arguments) const;
};

// The tools of one request, by the names written in the prompt.
class ToolSchemas {
 public:
  // Of two tools with one name the later counts; requests with such are refused before.
  explicit ToolSchemas(std::vector<ToolSchema> tools);

  const ToolSchema* Find(const std::string& name) const;  // nullptr: not declared
  bool empty() const { return tools_.empty(); }

 private:
  std::unordered_map<std::string, ToolSchema> tools_;
};

}  // namespace millrace::text
