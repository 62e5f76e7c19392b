#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::api {

// `json` between two brackets, in a string that holds nothing ahead: it may be a whole answer.
std::string Enclosed(char open, std::string_view json, char close);

// Writes one JSON object as text, members in the order of the calls. For formats that repeat large parts,
// which are written once and then copied. Texts are valid UTF-8, keys need no escaping.
class JsonObjectText {
 public:
  JsonObjectText& Text(std::string_view key, std::string_view text);
  JsonObjectText& Int(std::string_view key, int64_t number);
  JsonObjectText& Bool(std::string_view key, bool truth);
  JsonObjectText& Null(std::string_view key) { return Json(key, "null"); }
  // A value that is JSON already.
  JsonObjectText& Json(std::string_view key, std::string_view json);
  // Members that are JSON already, as Members gives them; may be empty.
  JsonObjectText& Append(std::string_view members);

  // Without the braces.
  const std::string& Members() const { return members_; }
  std::string Object() const { return Enclosed('{', members_, '}'); }

 private:
  void Key(std::string_view key);

  std::string members_;
};

}  // namespace millrace::api
