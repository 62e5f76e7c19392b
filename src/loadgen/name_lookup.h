#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace millrace::loadgen {

// The addresses of a host and port; `failure` says why there are none.
struct NameLookup {
  boost::system::error_code failure;
  std::vector<boost::asio::ip::tcp::endpoint> endpoints;
};

// Blocks for as long as it takes. Called on a thread of its own.
using NameLookupFunction = std::function<NameLookup(const std::string& host, const std::string& port)>;

// That of the system, whose deadline nobody knows.
NameLookup SystemLookUp(const std::string& host, const std::string& port);

// What `function` finds, or boost::asio::error::timed_out at `deadline`; the thread that still asks then is
// left alone, and nothing waits for it. Addresses in numbers need no lookup. Destroying the coroutine is
// leaving it, too. The arguments must live until the answer is there.
boost::asio::awaitable<NameLookup> LookUp(const NameLookupFunction& function, const std::string& host,
                                          const std::string& port,
                                          std::chrono::steady_clock::time_point deadline);

}  // namespace millrace::loadgen
