#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::api {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // of the target, without the query: "/v1/models"
  std::string query;
  HttpHeaders headers;
  std::string body;
};

// The value of the first header of that name (case-insensitive); empty when there is none.
std::string_view FindHeader(const HttpHeaders& headers, std::string_view name);

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;  // besides Content-Type, Content-Length and Connection
  std::string body;     // empty for the head of a stream
};

}  // namespace millrace::api
