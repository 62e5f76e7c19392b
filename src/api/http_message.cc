#include "api/http_message.h"

#include <algorithm>

namespace millrace::api {
namespace {

char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

void HttpRequest::DropBody() {
  std::string().swap(body);  // an assignment would keep its capacity
  body_memory = {};
}

std::string_view FindHeader(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    const bool same = std::equal(key.begin(), key.end(), name.begin(), name.end(),
                                 [](char a, char b) { return Lower(a) == Lower(b); });
    if (same) return value;
  }
  return {};
}

}  // namespace millrace::api
