#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace millrace {

// What the caller should do about an error; the text says what happened.
enum class ErrorCode : uint8_t {
  kInvalidArgument,    // the caller's input is wrong: change it
  kNotFound,           // the named thing does not exist
  kCorrupt,            // bytes from outside do not obey their format
  kMismatch,           // well-formed, but not what was expected (shape, type, model family)
  kResourceExhausted,  // a planned budget is used up: retry later or raise the budget
  kIo,                 // the operating system refused
  kCancelled,          // the caller withdrew the request
  kUnavailable,        // not now (shutting down, not ready)
  kDeadlineExceeded,   // the caller's time is up
};

// An expected failure: what the world can cause. The message says what was wrong, the value, and what to do.
class Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error with "context: " in front, for callers that know the file or field.
  Error In(const std::string& context) const { return Error(code_, context + ": " + message_); }

 private:
  ErrorCode code_;
  std::string message_;
};

// A value or an Error; cannot be ignored. Reading the wrong side is a programming error and ends the process.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return state_.index() == 0; }
  const Error& error() const {
    MILLRACE_CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<1>(state_);
  }
  T& value() & {
    MILLRACE_CHECK(ok(), "value() of a Result that holds an error");
    return std::get<0>(state_);
  }
  const T& value() const& {
    MILLRACE_CHECK(ok(), "value() of a Result that holds an error");
    return std::get<0>(state_);
  }
  T&& value() && {
    MILLRACE_CHECK(ok(), "value() of a Result that holds an error");
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return !error_.has_value(); }
  const Error& error() const {
    MILLRACE_CHECK(!ok(), "error() of a Status without one");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

#define MILLRACE_CONCAT_INNER(a, b) a##b
#define MILLRACE_CONCAT(a, b) MILLRACE_CONCAT_INNER(a, b)

// Returns the error of `expr` from the enclosing function, if it has one.
#define MILLRACE_RETURN_IF_ERROR(expr)                                    \
  do {                                                                    \
    auto millrace_status = (expr);                                        \
    if (!millrace_status.ok()) return std::move(millrace_status).error(); \
  } while (false)

// MILLRACE_ASSIGN_OR_RETURN(auto x, F()): declares x from F()'s value or returns F()'s error.
#define MILLRACE_ASSIGN_OR_RETURN(decl, expr) \
  MILLRACE_ASSIGN_OR_RETURN_IMPL(MILLRACE_CONCAT(millrace_result_, __LINE__), decl, expr)
#define MILLRACE_ASSIGN_OR_RETURN_IMPL(result, decl, expr) \
  auto result = (expr);                                    \
  if (!result.ok()) return result.error();                 \
  decl = std::move(result).value()

}  // namespace millrace
