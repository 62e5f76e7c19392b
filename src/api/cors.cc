#include "api/cors.h"

#include <algorithm>

namespace millrace::api {

HttpHeaders CorsPolicy::HeadersFor(const HttpRequest& request) const {
  const std::string_view origin = FindHeader(request.headers, "Origin");
  if (origins_.empty()) return {};
  const bool all = std::ranges::find(origins_, "*") != origins_.end();
  if (all && origin.empty()) return {};
  // Caches must not hand one page's permission, or the lack of it, to another.
  if (!all && std::ranges::find(origins_, origin) == origins_.end()) return {{"Vary", "Origin"}};
  HttpHeaders headers = {{"Access-Control-Allow-Origin", all ? "*" : std::string(origin)},
                         {"Access-Control-Expose-Headers", "X-Request-Id, request-id, Retry-After"}};
  if (!all) headers.emplace_back("Vary", "Origin");
  return headers;
}

bool CorsPolicy::IsPreflight(const HttpRequest& request) const {
  if (request.method != "OPTIONS" || FindHeader(request.headers, "Access-Control-Request-Method").empty())
    return false;
  const HttpHeaders headers = HeadersFor(request);
  return !FindHeader(headers, "Access-Control-Allow-Origin").empty();
}

HttpHeaders CorsPolicy::PreflightHeaders(const HttpRequest& request) const {
  HttpHeaders headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                         {"Access-Control-Max-Age", "600"}};
  // "*" would not cover Authorization.
  const std::string_view asked = FindHeader(request.headers, "Access-Control-Request-Headers");
  if (!asked.empty()) headers.emplace_back("Access-Control-Allow-Headers", std::string(asked));
  return headers;
}

}  // namespace millrace::api
