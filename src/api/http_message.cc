#include "api/http_message.h"

#include <algorithm>

namespace millrace::api {
namespace {

char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

}  // namespace

void HttpRequest::DropBody() {
  std::string().swap(body);  // an assignment would keep its capacity
  body_memory = {};
}

RequestTarget SplitTarget(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!EqualIgnoringCase(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));  // host and port
    break;
  }
  const size_t question = target.find('?');
  RequestTarget parts{target.substr(0, question), {}};
  if (parts.path.empty()) parts.path = "/";
  if (question != std::string_view::npos) parts.query = target.substr(question + 1);
  return parts;
}

std::string_view FindHeader(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers)
    if (EqualIgnoringCase(key, name)) return value;
  return {};
}

}  // namespace millrace::api
