#include "text/json_repair.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "text/utf8.h"

namespace millrace::text {
namespace {

// The code unit of an escape "\uXXXX" at `at`; nothing if there is no such escape.
std::optional<uint32_t> EscapedUnit(std::string_view text, size_t at) {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return std::nullopt;
  uint32_t unit = 0;
  for (size_t i = 2; i < 6; ++i) {
    const char c = text[at + i];
    uint32_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<uint32_t>(c - 'a') + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<uint32_t>(c - 'A') + 10;
    } else {
      return std::nullopt;
    }
    unit = unit << 4 | digit;
  }
  return unit;
}

bool IsHighSurrogate(uint32_t unit) {
  return unit >= 0xD800 && unit <= 0xDBFF;
}
bool IsLowSurrogate(uint32_t unit) {
  return unit >= 0xDC00 && unit <= 0xDFFF;
}

// Appends the escape sequence at `at`, repaired, and returns its length in `text`.
size_t AppendEscape(std::string_view text, size_t at, std::string& out) {
  const std::optional<uint32_t> unit = EscapedUnit(text, at);
  if (!unit) {  // another escape, or a broken one that the parser will refuse
    const size_t length = at + 1 < text.size() && static_cast<uint8_t>(text[at + 1]) < 0x80 ? 2 : 1;
    out.append(text, at, length);
    return length;
  }
  if (IsHighSurrogate(*unit)) {
    const std::optional<uint32_t> next = EscapedUnit(text, at + 6);
    if (next && IsLowSurrogate(*next)) {
      out.append(text, at, 12);
      return 12;
    }
  }
  if (IsHighSurrogate(*unit) || IsLowSurrogate(*unit)) {
    out += "\\ufffd";
  } else {
    out.append(text, at, 6);
  }
  return 6;
}

}  // namespace

std::string RepairJsonText(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '\\') {
      at += AppendEscape(text, at, out);
      continue;
    }
    const size_t run = std::min(text.find('\\', at), text.size()) - at;
    text::AppendRepaired(text.substr(at, run), out);
    at += run;
  }
  return out;
}

}  // namespace millrace::text
