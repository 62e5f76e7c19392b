#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/dialect.h"
#include "base/result.h"

namespace millrace::api {

// Every way a request can fail, one row each in the table of api_error.cc (status, type, code, retry).
enum class ApiErrorKind : uint8_t {
  kInvalidType,       // a field holds another JSON type than documented
  kInvalidValue,      // a field's value is outside what is accepted
  kMissingField,      // a required field is absent
  kUnsupportedField,  // a known field whose effect this server does not have; ignoring it would change the
                      // answer
  kInvalidJson,       // the body is not JSON
  kMalformedHttp,     // the bytes on the connection are not HTTP/1.1
  kUnsupportedTransferEncoding,
  kUnauthorized,   // no key that this server knows
  kContextLength,  // the prompt does not fit the model
  kModelNotFound,
  kRouteNotFound,
  kMethodNotAllowed,
  kBodyTooLarge,
  kHeadersTooLarge,
  kQueueFull,
  kQueueTimeout,  // no slot was free for too long
  kOverloaded,    // too many connections or too many body bytes in flight
  kDraining,
  kTimeout,    // the request's time is up
  kCancelled,  // the generation ended early on the server's side
  kInternal,
};

// How much too long a prompt is; clients find the numbers in each dialect's own wording.
struct PromptExcess {
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;  // of prompt and answer together
};

// A failure, whatever the dialect.
struct ApiError {
  ApiErrorKind kind{};
  std::string message;
  std::string param = {};  // path of the field, "messages[2].content"; empty when no field is to blame
  std::optional<PromptExcess> excess = {};  // of kContextLength
  std::optional<int> retry_after = {};      // seconds, as far as is known; nullopt: as the kind's row says

  int status(Dialect dialect = Dialect::kOpenAi) const;             // of HTTP
  std::string_view type(Dialect dialect = Dialect::kOpenAi) const;  // error.type
  std::string_view code() const;                                    // OpenAI's error.code; also for logs
  int retry_after_seconds() const;                                  // 0: no Retry-After header
};

// How the client of one request is told of an error.
struct ErrorStyle {
  Dialect dialect = Dialect::kOpenAi;
  std::string_view request_id;  // part of Anthropic's object; may be empty
};

// OpenAI's {"error":{"message","type","param","code"}} or Anthropic's
// {"type":"error","error":{"type","message"},"request_id"}.
std::string ErrorJson(const ApiError& error, const ErrorStyle& style = {});

// What an engine error means to a client.
ApiError FromEngineError(const Error& error);

}  // namespace millrace::api
