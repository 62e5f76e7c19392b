#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/beast/http/verb.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "loadgen/failure.h"
#include "loadgen/name_lookup.h"
#include "loadgen/server_url.h"

namespace millrace::loadgen {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

struct HttpClientOptions {
  ServerUrl url;
  std::string api_key;                                // empty: none is sent
  std::chrono::milliseconds connect_timeout{10'000};  // of the name's lookup, and again of the connection
  std::chrono::milliseconds stall_timeout{600'000};   // of silence, before and inside an answer
  std::chrono::milliseconds timeout{6 * 3'600'000};   // of a whole exchange
  NameLookupFunction look_up = SystemLookUp;
};

struct HttpAsk {
  boost::beast::http::verb method = boost::beast::http::verb::get;
  std::string path;                   // behind the URL's prefix
  std::string body;                   // JSON, or empty
  std::optional<TimePoint> leave_at;  // closes the connection then, wherever the answer is
};

struct HttpReply {
  int status = 0;  // 0: no head came
  std::string content_type;
  std::optional<double> retry_after_s;
  std::optional<Failure> failure;  // of the exchange; an answer with any status is none
  bool left = false;               // closed by us: leave_at came, or the sink wanted no more
};

// A client of HTTP/1.1 with a connection for each request, so that connections share nothing. Every wait has
// a deadline. One thread, any number of exchanges at once; names are looked up on threads beside it.
class HttpClient {
 public:
  // Gets the body in parts as they arrive, with the head in `reply`; false ends the exchange.
  using BodySink = std::function<bool(const HttpReply& reply, std::string_view part)>;

  explicit HttpClient(HttpClientOptions options) : options_(std::move(options)) {}

  // Both arguments must live until the answer is there.
  boost::asio::awaitable<HttpReply> Ask(const HttpAsk& ask, const BodySink& sink) const;

  const HttpClientOptions& options() const { return options_; }

 private:
  HttpClientOptions options_;
};

}  // namespace millrace::loadgen
