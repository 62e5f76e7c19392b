#include "api/field_reader.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace millrace::api {
namespace {

// The value as JSON, short enough for an error message. Containers are named by kind: they may be megabytes.
std::string Shown(const text::OrderedJson& value) {
  constexpr size_t kMaxBytes = 80;
  if (value.if_object() != nullptr) return "an object";
  if (const auto* const items = value.if_array()) return fmt::format("an array of {}", items->size());
  if (const auto* const text = value.if_string(); text != nullptr && text->size() > kMaxBytes)
    return fmt::format("a string of {} bytes", text->size());
  if (const auto* const number = value.if_number(); number != nullptr && number->text.size() > kMaxBytes)
    return fmt::format("a number of {} digits", number->text.size());
  return text::PythonJson(value);
}

bool IsInteger(const std::string& number) {
  return number.find_first_of(".eE") == std::string::npos;
}

void Fail(FirstError& error, ApiErrorKind kind, const std::string& path, const text::OrderedJson& found,
          std::string_view expected) {
  if (error.set()) return;
  const std::string_view what = kind == ApiErrorKind::kInvalidType ? "type" : "value";
  error.Set(kind, fmt::format("Invalid {} for '{}': {}. Expected {}.", what, path, Shown(found), expected),
            path);
}

}  // namespace

void FirstError::Set(ApiErrorKind kind, std::string message, std::string param) {
  if (!error_) error_ = ApiError{kind, std::move(message), std::move(param)};
}

void FailType(FirstError& error, const std::string& path, const text::OrderedJson& found,
              std::string_view expected) {
  Fail(error, ApiErrorKind::kInvalidType, path, found, expected);
}

void FailValue(FirstError& error, const std::string& path, const text::OrderedJson& found,
               std::string_view expected) {
  Fail(error, ApiErrorKind::kInvalidValue, path, found, expected);
}

void FailMissing(FieldReader& reader, std::string_view key, std::string_view what) {
  const std::string path = reader.PathOf(key);
  reader.error().Set(ApiErrorKind::kMissingField, fmt::format("'{}' is required: {}.", path, what), path);
}

std::optional<int64_t> AsInt64(const text::OrderedJson& value) {
  const text::OrderedJson::Number* const number = value.if_number();
  if (number == nullptr || !IsInteger(number->text)) return std::nullopt;
  int64_t integer = 0;
  const char* const end = number->text.data() + number->text.size();
  const auto [stop, error] = std::from_chars(number->text.data(), end, integer);
  if (error != std::errc() || stop != end) return std::nullopt;
  return integer;
}

std::optional<double> AsDouble(const text::OrderedJson& value) {
  const text::OrderedJson::Number* const number = value.if_number();
  if (number == nullptr) return std::nullopt;
  double parsed = 0;  // what is too small for a double stays 0
  std::from_chars(number->text.data(), number->text.data() + number->text.size(), parsed);
  return parsed;
}

const text::OrderedJson* FieldReader::Find(std::string_view key) const {
  const text::OrderedJson* const value = object_.Find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

std::string FieldReader::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

std::optional<bool> FieldReader::Bool(std::string_view key) {
  const text::OrderedJson* const value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (const bool* const truth = value->if_bool()) return *truth;
  FailType(error_, PathOf(key), *value, "true or false");
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Int(std::string_view key, int64_t low, int64_t high) {
  const text::OrderedJson* const value = Find(key);
  if (value == nullptr) return std::nullopt;
  const std::string expected = high == std::numeric_limits<int64_t>::max()
                                   ? fmt::format("an integer of at least {}", low)
                                   : fmt::format("an integer between {} and {}", low, high);
  const std::optional<int64_t> number = AsInt64(*value);
  const bool is_integer = value->if_number() != nullptr && IsInteger(value->if_number()->text);
  if (!is_integer) {
    FailType(error_, PathOf(key), *value, expected);
    return std::nullopt;
  }
  if (!number || *number < low || *number > high) {
    FailValue(error_, PathOf(key), *value, expected);
    return std::nullopt;
  }
  return number;
}

std::optional<double> FieldReader::Number(std::string_view key, double low, double high) {
  const text::OrderedJson* const value = Find(key);
  if (value == nullptr) return std::nullopt;
  const std::string expected = fmt::format("a number between {} and {}", low, high);
  const std::optional<double> number = AsDouble(*value);
  if (!number) {
    FailType(error_, PathOf(key), *value, expected);
    return std::nullopt;
  }
  if (!(*number >= low && *number <= high)) {
    FailValue(error_, PathOf(key), *value, expected);
    return std::nullopt;
  }
  return number;
}

std::optional<std::string> FieldReader::String(std::string_view key) {
  const text::OrderedJson* const value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (const std::string* const text = value->if_string()) return *text;
  FailType(error_, PathOf(key), *value, "a string");
  return std::nullopt;
}

const text::OrderedJson* FieldReader::Object(std::string_view key) {
  const text::OrderedJson* const value = Find(key);
  if (value == nullptr || value->if_object() != nullptr) return value;
  FailType(error_, PathOf(key), *value, "an object");
  return nullptr;
}

const text::OrderedJson::Array* FieldReader::Array(std::string_view key) {
  const text::OrderedJson* const value = Find(key);
  if (value == nullptr) return nullptr;
  if (value->if_array() == nullptr) FailType(error_, PathOf(key), *value, "an array");
  return value->if_array();
}

}  // namespace millrace::api
