#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_budget.h"

namespace millrace::api {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// Moves only, because of its body's memory.
struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // of the target, without the query: "/v1/models"
  std::string query;
  HttpHeaders headers;
  std::string body;
  ByteReservation body_memory;  // of the server's budget, for as long as the body is there

  // Frees the body and gives its memory back.
  void DropBody();
};

// The parts of a request target as views into it: of the origin form, "/v1/models?limit=1", and of the
// absolute form that clients send to proxies, "http://host:8000/v1/models?limit=1".
struct RequestTarget {
  std::string_view path;
  std::string_view query;
};
RequestTarget SplitTarget(std::string_view target);

// The value of the first header of that name (case-insensitive); empty when there is none.
std::string_view FindHeader(const HttpHeaders& headers, std::string_view name);

// Moves only, because of its body's memory.
struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;  // besides Content-Type, Content-Length and Connection
  std::string body;     // empty for the head of a stream
  // Of the answers' budget, for as long as the body is there: covers all of it, or nothing.
  ByteReservation body_memory = {};
};

}  // namespace millrace::api
