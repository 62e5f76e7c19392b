#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/api_error.h"
#include "text/ordered_json.h"

namespace millrace::api {

// The first thing wrong with a request; later ones are not recorded.
class FirstError {
 public:
  void Set(ApiErrorKind kind, std::string message, std::string param);
  bool set() const { return error_.has_value(); }
  ApiError Take() { return std::move(*error_); }

 private:
  std::optional<ApiError> error_;
};

// "Invalid value for 'temperature': 7. Expected a number between 0 and 2."
void FailType(FirstError& error, const std::string& path, const text::OrderedJson& found,
              std::string_view expected);
void FailValue(FirstError& error, const std::string& path, const text::OrderedJson& found,
               std::string_view expected);

class FieldReader;
// "'tools[0].name' is required: what the model calls the tool."
void FailMissing(FieldReader& reader, std::string_view key, std::string_view what);

// An integer of 64 bits; nothing for 1.0, which is not one.
std::optional<int64_t> AsInt64(const text::OrderedJson& value);
// Any number.
std::optional<double> AsDouble(const text::OrderedJson& value);

// Reads the fields of one object by name and type. An absent or null field is nullopt; a wrong one is nullopt
// too and recorded in the FirstError, so a decoder reads all fields first and asks once at the end. The
// object and the FirstError outlive the reader.
class FieldReader {
 public:
  // `path` is the object's own ("" for the body). Of a value of another kind all fields are absent.
  FieldReader(const text::OrderedJson& object, std::string path, FirstError& error)
      : object_(object), path_(std::move(path)), error_(error) {}

  std::optional<bool> Bool(std::string_view key);
  std::optional<int64_t> Int(std::string_view key, int64_t low, int64_t high);
  std::optional<double> Number(std::string_view key, double low, double high);
  std::optional<std::string> String(std::string_view key);
  const text::OrderedJson* Object(std::string_view key);  // the object itself
  const text::OrderedJson::Array* Array(std::string_view key);

  // nullptr when absent or null.
  const text::OrderedJson* Find(std::string_view key) const;
  std::string PathOf(std::string_view key) const;
  FirstError& error() { return error_; }

 private:
  const text::OrderedJson& object_;
  std::string path_;
  FirstError& error_;
};

}  // namespace millrace::api
