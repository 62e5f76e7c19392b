#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace millrace::text {

// A JSON value as its sender wrote it: keys in order, numbers as their text. What a prompt shows of a tool's
// schema or of a call's arguments depends on both (chat encoding, section 7). Values nest as deep as the
// parser's limit; all operations recurse no deeper. Const use from any thread.
class OrderedJson {
 public:
  struct Member;
  using Array = std::vector<OrderedJson>;
  using Object = std::vector<Member>;  // no key twice
  struct Number {
    std::string text;  // by the JSON grammar, within the double range
  };

  // Defined out of line, where Member is complete.
  OrderedJson();  // null
  explicit OrderedJson(bool value);
  explicit OrderedJson(Number number);
  explicit OrderedJson(std::string text);
  explicit OrderedJson(const char* text);  // a string too: without it a literal would become a bool
  explicit OrderedJson(Array items);
  explicit OrderedJson(Object members);
  OrderedJson(const OrderedJson& other);
  OrderedJson(OrderedJson&& other) noexcept;
  OrderedJson& operator=(const OrderedJson& other);
  OrderedJson& operator=(OrderedJson&& other) noexcept;
  ~OrderedJson();

  // Null if the value is of another kind. Views live as long as the value.
  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  const bool* if_bool() const { return std::get_if<bool>(&value_); }
  const Number* if_number() const { return std::get_if<Number>(&value_); }
  const std::string* if_string() const { return std::get_if<std::string>(&value_); }
  const Array* if_array() const { return std::get_if<Array>(&value_); }
  const Object* if_object() const { return std::get_if<Object>(&value_); }

  // The member of an object; nullptr if there is none or this is no object.
  const OrderedJson* Find(std::string_view key) const;

  // Equal as JSON values: the order of keys does not matter, nor how a number is written. Integers are
  // compared digit by digit, other numbers as doubles. n log n.
  friend bool operator==(const OrderedJson& a, const OrderedJson& b);

 private:
  std::variant<std::monostate, bool, Number, std::string, Array, Object> value_;
};

struct OrderedJson::Member {
  std::string key;
  OrderedJson value;
};

// What one text may cost its reader. A text of tiny values takes about 30 times its size in memory.
struct OrderedJsonLimits {
  size_t max_bytes = size_t{64} << 20;
  size_t max_depth = 128;  // nested arrays and objects
  size_t max_values = size_t{1} << 22;
};

// Parses one JSON text (RFC 8259, nothing after the value). A repeated key keeps its first place and takes
// the last value. Invalid UTF-8 and lone surrogates become U+FFFD. Errors (kCorrupt) give line and column;
// numbers beyond the double range are one. kResourceExhausted: beyond `max_bytes` or
// `max_values`. n log n at worst.
Result<OrderedJson> ParseOrderedJson(std::string_view text, const OrderedJsonLimits& limits = {});

// As Python's json.dumps(value, ensure_ascii=False) writes it (chat encoding, section 7): ", " and ": "
// between, raw UTF-8, integers with all their digits, other numbers as Python's repr of the double.
std::string PythonJson(const OrderedJson& value);

// `text` as the inside of a JSON string literal in that style, without the quotes. Escaping piece by piece
// gives the same as escaping the whole.
void AppendJsonEscaped(std::string_view text, std::string& out);

}  // namespace millrace::text
