#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/ordered_json.h"
#include "text/tool_schema.h"

namespace millrace::text {

// Writes the arguments of one call as JSON text (chat encoding, section 7), piece by piece as its parameters
// are parsed. Each function appends to `out` what can go out. One call, one thread.
class CallArguments {
 public:
  // `tool` is nullptr for a tool that is not declared; else it must outlive this.
  explicit CallArguments(const ToolSchema* tool) : tool_(tool) {}

  // `string` is the parameter's attribute of that name, if it has one.
  void BeginParameter(std::string name, const std::optional<std::string>& string, std::string& out);
  // The next text of its value.
  void AppendText(std::string_view text, std::string& out);
  void EndParameter(std::string& out);

  // The call is closed: all is written.
  void Close(std::string& out);
  // The same for a call that has `body` in place of parameters: a JSON object. If it cannot be read, its text
  // is the one parameter `arguments`.
  void CloseWithBody(std::string_view body, std::string& out);
  // Whether it can be read.
  static bool IsObject(std::string_view body);

 private:
  struct Parameter {
    std::string name;
    bool is_text = false;  // else JSON, if it can be read
    bool held = false;     // may hold all arguments (section 11, row 22)
    bool written = false;  // its name and opening quote went out
    std::string value;     // of what is not written as it comes
  };

  void WriteName(std::string_view name, std::string& out);
  void Write(const OrderedJson::Member& member, std::string& out);
  bool MayHoldAll(const std::string& name) const;
  // The arguments inside the value of such a parameter, if they fit the tool.
  std::optional<OrderedJson> Unwrap(const OrderedJson& value) const;

  const ToolSchema* tool_;
  bool any_parameter_ = false;
  bool any_written_ = false;
  std::optional<Parameter> open_;
  std::optional<OrderedJson::Member> lone_;  // the only parameter so far, held
};

}  // namespace millrace::text
