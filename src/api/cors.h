#pragma once

#include <string>
#include <vector>

#include "api/http_message.h"

namespace millrace::api {

// Which web pages may read this server's answers (the Fetch standard's CORS protocol). Without origins none
// may: browsers refuse on their own. Immutable; any thread.
class CorsPolicy {
 public:
  CorsPolicy() = default;
  // Origins as browsers send them, "https://chat.example:8443"; "*" is every one.
  explicit CorsPolicy(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  // The headers that let the request's page read its answer; empty when it may not.
  HttpHeaders HeadersFor(const HttpRequest& request) const;

  // True for the question that a browser sends ahead of a request, from a page that may ask.
  bool IsPreflight(const HttpRequest& request) const;
  // What the answer to it has besides HeadersFor.
  HttpHeaders PreflightHeaders(const HttpRequest& request) const;

 private:
  std::vector<std::string> origins_;
};

}  // namespace millrace::api
