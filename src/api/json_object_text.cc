#include "api/json_object_text.h"

#include "text/ordered_json.h"

namespace millrace::api {

std::string Enclosed(char open, std::string_view json, char close) {
  std::string enclosed;
  enclosed.reserve(json.size() + 2);
  enclosed += open;
  enclosed += json;
  return enclosed += close;
}

void JsonObjectText::Key(std::string_view key) {
  if (!members_.empty()) members_ += ',';
  members_ += '"';
  members_ += key;
  members_ += "\":";
}

JsonObjectText& JsonObjectText::Text(std::string_view key, std::string_view text) {
  // So that what is escaped makes a long text grow once at most.
  constexpr size_t kEscaped = 4;
  Key(key);
  members_.reserve(members_.size() + text.size() + text.size() / kEscaped + 2);
  members_ += '"';
  text::AppendJsonEscaped(text, members_);
  members_ += '"';
  return *this;
}

JsonObjectText& JsonObjectText::Int(std::string_view key, int64_t number) {
  return Json(key, std::to_string(number));
}

JsonObjectText& JsonObjectText::Bool(std::string_view key, bool truth) {
  return Json(key, truth ? "true" : "false");
}

JsonObjectText& JsonObjectText::Json(std::string_view key, std::string_view json) {
  Key(key);
  members_ += json;
  return *this;
}

JsonObjectText& JsonObjectText::Append(std::string_view members) {
  if (!members_.empty() && !members.empty()) members_ += ',';
  members_ += members;
  return *this;
}

}  // namespace millrace::api
