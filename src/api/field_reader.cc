#include "api/field_reader.h"

#include <fmt/format.h>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include <cmath>
#include <limits>

namespace millrace::api {
namespace {

// The value as JSON, short enough for an error message. Containers are named by kind: they may be megabytes.
std::string Shown(const boost::json::value& value) {
  constexpr size_t kMaxBytes = 80;
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.get_array().size());
  if (value.is_string() && value.get_string().size() > kMaxBytes)
    return fmt::format("a string of {} bytes", value.get_string().size());
  return boost::json::serialize(value);
}

void Fail(FirstError& error, ApiErrorKind kind, const std::string& path, const boost::json::value& found,
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

void FailType(FirstError& error, const std::string& path, const boost::json::value& found,
              std::string_view expected) {
  Fail(error, ApiErrorKind::kInvalidType, path, found, expected);
}

void FailValue(FirstError& error, const std::string& path, const boost::json::value& found,
               std::string_view expected) {
  Fail(error, ApiErrorKind::kInvalidValue, path, found, expected);
}

std::optional<int64_t> AsInt64(const boost::json::value& value) {
  if (value.is_int64()) return value.get_int64();
  return std::nullopt;  // uint64 holds only what int64 cannot
}

const boost::json::value* FieldReader::Find(std::string_view key) const {
  const boost::json::value* const value = object_.if_contains(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

std::string FieldReader::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

std::optional<bool> FieldReader::Bool(std::string_view key) {
  const boost::json::value* const value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  FailType(error_, PathOf(key), *value, "true or false");
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Int(std::string_view key, int64_t low, int64_t high) {
  const boost::json::value* const value = Find(key);
  if (value == nullptr) return std::nullopt;
  const std::string expected = high == std::numeric_limits<int64_t>::max()
                                   ? fmt::format("an integer of at least {}", low)
                                   : fmt::format("an integer between {} and {}", low, high);
  const std::optional<int64_t> number = AsInt64(*value);
  if (!number && !value->is_uint64()) {
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
  const boost::json::value* const value = Find(key);
  if (value == nullptr) return std::nullopt;
  const std::string expected = fmt::format("a number between {} and {}", low, high);
  if (!value->is_number()) {
    FailType(error_, PathOf(key), *value, expected);
    return std::nullopt;
  }
  const double number = value->to_number<double>();
  if (!(number >= low && number <= high)) {
    FailValue(error_, PathOf(key), *value, expected);
    return std::nullopt;
  }
  return number;
}

std::optional<std::string> FieldReader::String(std::string_view key) {
  const boost::json::value* const value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::string(value->get_string());
  FailType(error_, PathOf(key), *value, "a string");
  return std::nullopt;
}

const boost::json::object* FieldReader::Object(std::string_view key) {
  const boost::json::value* const value = Find(key);
  if (value == nullptr) return nullptr;
  if (value->is_object()) return &value->get_object();
  FailType(error_, PathOf(key), *value, "an object");
  return nullptr;
}

}  // namespace millrace::api
