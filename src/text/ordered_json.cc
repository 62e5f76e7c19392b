#include "text/ordered_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <optional>

namespace millrace::text {
namespace {

bool IsInteger(std::string_view number) {
  return number.find_first_of(".eE") == std::string_view::npos;
}

// The parser lets only numbers through that have a double; from_chars refuses those that round to zero.
double AsDouble(std::string_view number) {
  double value = number.starts_with('-') ? -0.0 : 0.0;
  std::from_chars(number.data(), number.data() + number.size(), value);
  return value;
}

// Python's repr of a double: the shortest digits that read back the same, in plain notation for decimal
// exponents from -4 to 15.
void AppendDouble(double value, std::string& out) {
  std::array<char, 32> buffer;  // "-1.7976931348623157e+308" and room
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  if (text.starts_with('-')) {
    out += '-';
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  if (digits.size() > 1) digits.erase(1, 1);  // the point
  int exponent = 0;
  const char* const sign = text.data() + e + 1;
  std::from_chars(*sign == '+' ? sign + 1 : sign, text.data() + text.size(), exponent);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent > 15) {
    if (count > 1) digits.insert(1, ".");
    out += fmt::format("{}e{}{:02}", digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else if (count <= exponent + 1) {
    out.append(digits).append(static_cast<size_t>(exponent + 1 - count), '0').append(".0");
  } else {
    out.append(digits.insert(static_cast<size_t>(exponent + 1), "."));
  }
}

void AppendNumber(std::string_view number, std::string& out) {
  if (!IsInteger(number)) return AppendDouble(AsDouble(number), out);
  out += number == "-0" ? std::string_view("0") : number;
}

void AppendQuoted(std::string_view text, std::string& out) {
  out += '"';
  AppendJsonEscaped(text, out);
  out += '"';
}

void Append(const OrderedJson& value, std::string& out) {
  if (value.is_null()) {
    out += "null";
  } else if (const bool* const truth = value.if_bool()) {
    out += *truth ? "true" : "false";
  } else if (const OrderedJson::Number* const number = value.if_number()) {
    AppendNumber(number->text, out);
  } else if (const std::string* const text = value.if_string()) {
    AppendQuoted(*text, out);
  } else if (const OrderedJson::Array* const items = value.if_array()) {
    out += '[';
    for (const OrderedJson& item : *items) {
      if (&item != items->data()) out += ", ";
      Append(item, out);
    }
    out += ']';
  } else {
    const OrderedJson::Object& members = *value.if_object();
    out += '{';
    for (const OrderedJson::Member& member : members) {
      if (&member != members.data()) out += ", ";
      AppendQuoted(member.key, out);
      out += ": ";
      Append(member.value, out);
    }
    out += '}';
  }
}

bool SameNumber(std::string_view a, std::string_view b) {
  if (IsInteger(a) && IsInteger(b)) return (a == "-0" ? "0" : a) == (b == "-0" ? "0" : b);
  return AsDouble(a) == AsDouble(b);
}

std::vector<const OrderedJson::Member*> ByKey(const OrderedJson::Object& members) {
  std::vector<const OrderedJson::Member*> sorted;
  sorted.reserve(members.size());
  for (const OrderedJson::Member& member : members) sorted.push_back(&member);
  std::ranges::sort(sorted, {}, &OrderedJson::Member::key);
  return sorted;
}

bool SameObject(const OrderedJson::Object& a, const OrderedJson::Object& b) {
  if (a.size() != b.size()) return false;
  return std::ranges::equal(ByKey(a), ByKey(b), [](const auto* x, const auto* y) {
    return x->key == y->key && x->value == y->value;
  });
}

}  // namespace

OrderedJson::OrderedJson() = default;
OrderedJson::OrderedJson(bool value) : value_(value) {}
OrderedJson::OrderedJson(Number number) : value_(std::move(number)) {}
OrderedJson::OrderedJson(std::string text) : value_(std::move(text)) {}
OrderedJson::OrderedJson(const char* text) : OrderedJson(std::string(text)) {}
OrderedJson::OrderedJson(Array items) : value_(std::move(items)) {}
OrderedJson::OrderedJson(Object members) : value_(std::move(members)) {}
OrderedJson::OrderedJson(const OrderedJson& other) = default;
OrderedJson::OrderedJson(OrderedJson&& other) noexcept = default;
OrderedJson& OrderedJson::operator=(const OrderedJson& other) = default;
OrderedJson& OrderedJson::operator=(OrderedJson&& other) noexcept = default;
OrderedJson::~OrderedJson() = default;

const OrderedJson* OrderedJson::Find(std::string_view key) const {
  const Object* const members = if_object();
  if (members == nullptr) return nullptr;
  const auto found = std::ranges::find(*members, key, &Member::key);
  return found == members->end() ? nullptr : &found->value;
}

bool operator==(const OrderedJson& a, const OrderedJson& b) {
  if (a.value_.index() != b.value_.index()) return false;
  if (const auto* const number = a.if_number()) return SameNumber(number->text, b.if_number()->text);
  if (const auto* const members = a.if_object()) return SameObject(*members, *b.if_object());
  if (const auto* const items = a.if_array()) return *items == *b.if_array();
  if (const auto* const text = a.if_string()) return *text == *b.if_string();
  if (const bool* const truth = a.if_bool()) return *truth == *b.if_bool();
  return true;
}

std::string PythonJson(const OrderedJson& value) {
  std::string out;
  Append(value, out);
  return out;
}

void AppendJsonEscaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
}

}  // namespace millrace::text
