#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace::loadgen {

// Where the server under test listens.
struct ServerUrl {
  std::string host;  // name or address, IPv6 without its brackets
  std::string port;
  std::string prefix;  // path in front of "/v1", without a slash at its end; mostly empty

  // "http://host:port", with or without "http://", the port (80) and "/v1". Error kInvalidArgument naming the
  // text, also for https.
  static Result<ServerUrl> Parse(std::string_view text);

  // The value of the Host header.
  std::string HostHeader() const;
  std::string ToString() const;
};

}  // namespace millrace::loadgen
