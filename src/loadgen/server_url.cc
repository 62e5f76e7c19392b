#include "loadgen/server_url.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <system_error>

namespace millrace::loadgen {
namespace {

Error Wrong(std::string_view text, std::string_view what) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("'{}' {}; give the server as http://HOST:PORT", text, what));
}

bool IsPort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), port);
  return failure == std::errc() && end == text.data() + text.size() && port > 0;
}

}  // namespace

Result<ServerUrl> ServerUrl::Parse(std::string_view text) {
  std::string_view rest = text;
  if (rest.starts_with("https://"))
    return Wrong(text, "asks for TLS, which this client does not speak: put a proxy in front");
  if (rest.starts_with("http://")) rest.remove_prefix(7);
  if (rest.find("://") != std::string_view::npos) return Wrong(text, "is not an http URL");
  if (rest.find_first_of("?#@ \t\r\n") != std::string_view::npos)
    return Wrong(text, "has more than a host, a port and a path");
  ServerUrl url{.host = {}, .port = "80", .prefix = {}};
  const size_t slash = rest.find('/');
  std::string_view address = rest.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? "" : rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  url.prefix = path;
  const size_t bracket = address.starts_with('[') ? address.find(']') : std::string_view::npos;
  const size_t colon = address.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    url.port = address.substr(colon + 1);
    address = address.substr(0, colon);
  }
  if (bracket != std::string_view::npos) address = address.substr(1, bracket - 1);
  url.host = address;
  if (url.host.empty()) return Wrong(text, "names no host");
  if (!IsPort(url.port)) return Wrong(text, "has no port between 1 and 65535 behind its colon");
  return url;
}

std::string ServerUrl::HostHeader() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::string ServerUrl::ToString() const {
  return fmt::format("http://{}{}", HostHeader(), prefix);
}

}  // namespace millrace::loadgen
