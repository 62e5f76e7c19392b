#include "api/custom_tool_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/ordered_json.h"

namespace millrace::api {
namespace {

constexpr size_t kUnicodeEscapeBytes = 6;  // \uXXXX

// How arguments begin that have the key first.
const std::string& Opening() {
  static const std::string kOpening = fmt::format("{{\"{}\": \"", kCustomToolInputKey);
  return kOpening;
}

bool IsHighSurrogate(std::string_view escape) {
  return escape.size() == kUnicodeEscapeBytes && (escape[2] == 'd' || escape[2] == 'D') &&
         std::string_view("89abAB").find(escape[3]) != std::string_view::npos;
}

struct StringScan {
  size_t whole = 0;  // bytes in front of the closing quote or of an escape that is not whole
  bool closed = false;
};

// Reads the inside of a JSON string as far as it goes.
StringScan ScanString(std::string_view text) {
  size_t at = 0;
  size_t high_surrogate = std::string_view::npos;  // its other half must come with it
  while (at < text.size() && text[at] != '"') {
    size_t bytes = 1;
    if (text[at] == '\\') {
      bytes = at + 1 < text.size() && text[at + 1] == 'u' ? kUnicodeEscapeBytes : 2;
      if (at + bytes > text.size()) break;
    }
    const bool opens_pair =
        high_surrogate == std::string_view::npos && IsHighSurrogate(text.substr(at, bytes));
    high_surrogate = opens_pair ? at : std::string_view::npos;
    at += bytes;
  }
  if (at < text.size() && text[at] == '"') return {at, true};
  return {std::min(at, high_surrogate), false};
}

std::string Unescaped(std::string_view inside) {
  const Result<text::OrderedJson> parsed = text::ParseOrderedJson(fmt::format("\"{}\"", inside));
  return parsed.ok() && parsed->if_string() != nullptr ? *parsed->if_string() : std::string(inside);
}

}  // namespace

std::string CustomToolArguments(const std::string& input) {
  text::OrderedJson::Object object;
  object.push_back({std::string(kCustomToolInputKey), text::OrderedJson(input)});
  return text::PythonJson(text::OrderedJson(std::move(object)));
}

std::string CustomToolInput(const std::string& arguments) {
  const Result<text::OrderedJson> parsed = text::ParseOrderedJson(arguments);
  if (!parsed.ok()) return arguments;
  const text::OrderedJson* const input = parsed->Find(kCustomToolInputKey);
  return input != nullptr && input->if_string() != nullptr ? *input->if_string() : arguments;
}

std::string CustomToolInputStream::Push(std::string_view arguments) {
  if (ended_) return "";
  held_ += arguments;
  if (!inside_) {
    const std::string& opening = Opening();
    const size_t shown = std::min(held_.size(), opening.size());
    ended_ = held_.compare(0, shown, opening, 0, shown) != 0;
    if (ended_ || shown < opening.size()) return "";
    held_.erase(0, opening.size());
    inside_ = true;
  }
  const StringScan scan = ScanString(held_);
  ended_ = scan.closed;
  std::string text = Unescaped(std::string_view(held_).substr(0, scan.whole));
  held_.erase(0, scan.whole);
  return text;
}

}  // namespace millrace::api
