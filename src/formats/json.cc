#include "formats/json.h"

#include <charconv>
#include <cmath>
#include <exception>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <boost/json/value_stack.hpp>

namespace millrace::formats {
namespace {

namespace json = boost::json;
using json::error_code;

constexpr size_t kClippedBytes = 120;

std::string_view ClippedPart(std::string_view text) {
  if (text.size() <= kClippedBytes) return text;
  size_t end = kClippedBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

// Builds the value, and refuses what the library lets pass: repeated keys, and numbers beyond a double.
class DocumentHandler {
 public:
  static constexpr size_t max_object_size = json::object::max_size();
  static constexpr size_t max_array_size = json::array::max_size();
  static constexpr size_t max_key_size = json::string::max_size();
  static constexpr size_t max_string_size = json::string::max_size();

  bool on_document_begin(error_code&) {
    values_.reset();
    return true;
  }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    open_objects_.emplace_back();
    return true;
  }
  bool on_object_end(size_t n, error_code&) {
    open_objects_.pop_back();
    values_.push_object(n);
    return true;
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(size_t n, error_code&) {
    values_.push_array(n);
    return true;
  }
  bool on_key_part(json::string_view part, size_t, error_code&) {
    key_.append(part.data(), part.size());
    values_.push_chars(part);
    return true;
  }
  bool on_key(json::string_view part, size_t, error_code& ec) {
    key_.append(part.data(), part.size());
    values_.push_key(part);
    if (!open_objects_.back().insert(key_).second) {
      return Refuse(fmt::format("the key {} appears twice in one object", Quoted(key_)), ec);
    }
    key_.clear();
    return true;
  }
  bool on_string_part(json::string_view part, size_t, error_code&) {
    values_.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, size_t, error_code&) {
    values_.push_string(part);
    return true;
  }
  bool on_number_part(json::string_view, error_code&) { return true; }
  bool on_int64(int64_t value, json::string_view, error_code&) {
    values_.push_int64(value);
    return true;
  }
  bool on_uint64(uint64_t value, json::string_view, error_code&) {
    values_.push_uint64(value);
    return true;
  }
  bool on_double(double value, json::string_view text, error_code& ec) {
    const std::optional<double> nearest = NearestDouble({text.data(), text.size()}, value);
    if (!nearest) {
      return Refuse(fmt::format("the number {} is too large", Quoted({text.data(), text.size()})), ec);
    }
    values_.push_double(*nearest);
    return true;
  }
  bool on_bool(bool value, error_code&) {
    values_.push_bool(value);
    return true;
  }
  bool on_null(error_code&) {
    values_.push_null();
    return true;
  }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }

  json::value Release() { return values_.release(); }
  // Why this handler refused; empty if it did not.
  const std::string& refusal() const { return refusal_; }

 private:
  bool Refuse(std::string why, error_code& ec) {
    refusal_ = std::move(why);
    ec = json::make_error_code(json::error::exception);
    return false;
  }

  json::value_stack values_;
  std::vector<std::unordered_set<std::string>> open_objects_;  // the keys seen so far, outermost first
  std::string key_;
  std::string refusal_;
};

Result<json::value> ParseDocument(std::string_view text, const JsonLimits& limits) {
  json::parse_options options;
  options.max_depth = limits.max_depth;
  json::basic_parser<DocumentHandler> parser(options);
  error_code ec;
  const size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && used < text.size()) ec = json::make_error_code(json::error::extra_data);
  if (!ec) return parser.handler().Release();
  const std::string& refusal = parser.handler().refusal();
  std::string why = !refusal.empty() ? refusal
                    : ec == json::make_error_code(json::error::too_deep)
                        ? fmt::format("arrays and objects are nested deeper than {} levels", limits.max_depth)
                        : ec.message();
  return Error(ErrorCode::kCorrupt, fmt::format("not valid JSON at {}: {}", LineAndColumn(text, used), why));
}

}  // namespace

Result<json::value> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Error(ErrorCode::kCorrupt, fmt::format("the JSON text has {} bytes, at most {} are accepted",
                                                  text.size(), limits.max_bytes));
  }
  try {
    return ParseDocument(text, limits);
  } catch (const std::exception& e) {  // allocation failures of the library
    return Error(ErrorCode::kCorrupt, fmt::format("the JSON text cannot be held: {}", e.what()));
  }
}

std::optional<double> NearestDouble(std::string_view text, double approximate) {
  double nearest = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), nearest);
  if (status == std::errc() && end == text.data() + text.size()) return nearest;
  // Out of range: from_chars does not say on which side.
  if (std::fabs(approximate) < 1.0) return std::copysign(0.0, approximate);
  return std::nullopt;
}

std::string JsonString(std::string_view text) {
  return json::serialize(json::string_view(text.data(), text.size()));
}

std::string Clipped(std::string_view text) {
  return text.size() <= kClippedBytes ? std::string(text) : std::string(ClippedPart(text)) + "...";
}

std::string Quoted(std::string_view text) {
  return JsonString(ClippedPart(text)) + (text.size() <= kClippedBytes ? "" : "...");
}

std::string LineAndColumn(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  size_t line = 1;
  for (char c : before) line += c == '\n';
  const size_t last_break = before.rfind('\n');
  const size_t column = last_break == std::string_view::npos ? before.size() : before.size() - last_break - 1;
  return fmt::format("line {}, column {}", line, column + 1);
}

}  // namespace millrace::formats
