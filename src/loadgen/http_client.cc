#include "loadgen/http_client.h"

#include <boost/asio/error.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

namespace millrace::loadgen {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto kTuple = asio::experimental::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 16 << 10;
constexpr uint32_t kMaxHeaderBytes = 64 << 10;

// Seconds; a date, which the field may hold instead, is not understood and counts as absent.
std::optional<double> ParseRetryAfter(std::string_view value) {
  uint32_t seconds = 0;
  const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (failure != std::errc() || end != value.data() + value.size()) return std::nullopt;
  return seconds;
}

// One exchange on a connection of its own.
class Exchange {
 public:
  Exchange(const HttpClientOptions& options, const HttpAsk& ask, asio::any_io_executor executor)
      : options_(options), ask_(ask), begin_(Clock::now()), stream_(executor) {}

  asio::awaitable<HttpReply> Run(const HttpClient::BodySink& sink) {
    if (!co_await Connect()) co_return std::move(reply_);
    const http::request<http::string_body> request = MakeRequest();
    SetDeadline(options_.stall_timeout);
    const auto [write_failure, n_written] = co_await http::async_write(stream_, request, kTuple);
    // A server that refuses without reading all of the body has answered nonetheless.
    if (write_failure == beast::error::timeout) {
      Fail(write_failure, "took no more of the request");
      co_return std::move(reply_);
    }
    http::response_parser<http::buffer_body> parser;
    parser.header_limit(kMaxHeaderBytes);
    parser.body_limit(boost::none);
    SetDeadline(options_.stall_timeout);
    const auto [head_failure, n_head] = co_await http::async_read_header(stream_, buffer_, parser, kTuple);
    if (head_failure) {
      Fail(head_failure, "sent no answer");
      co_return std::move(reply_);
    }
    TakeHead(parser.get());
    co_await ReadBody(parser, sink);
    co_return std::move(reply_);
  }

 private:
  asio::awaitable<bool> Connect() {
    const NameLookup found = co_await LookUp(options_.look_up, options_.url.host, options_.url.port,
                                             DeadlineOf(options_.connect_timeout));
    if (found.failure) {
      const bool late = found.failure == asio::error::timed_out;
      if (!late || !TakeLeave(beast::error::timeout)) FailLookUp(found.failure);
      co_return false;
    }
    SetDeadline(options_.connect_timeout);
    const auto [failure, endpoint] = co_await stream_.async_connect(found.endpoints, kTuple);
    if (failure) {
      if (!TakeLeave(failure)) FailConnect(failure);
      co_return false;
    }
    error_code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    co_return true;
  }

  http::request<http::string_body> MakeRequest() const {
    http::request<http::string_body> request(ask_.method, options_.url.prefix + ask_.path, 11);
    request.set(http::field::host, options_.url.HostHeader());
    request.set(http::field::user_agent, "millrace-bench");
    request.set(http::field::connection, "close");
    if (!options_.api_key.empty())
      request.set(http::field::authorization, fmt::format("Bearer {}", options_.api_key));
    if (!ask_.body.empty()) request.set(http::field::content_type, "application/json");
    request.body() = ask_.body;
    request.prepare_payload();
    return request;
  }

  void TakeHead(const http::response_header<>& head) {
    reply_.status = static_cast<int>(head.result_int());
    const auto type = head[http::field::content_type];
    reply_.content_type = std::string(type.data(), type.size());
    const auto retry_after = head[http::field::retry_after];
    reply_.retry_after_s = ParseRetryAfter({retry_after.data(), retry_after.size()});
  }

  asio::awaitable<void> ReadBody(http::response_parser<http::buffer_body>& parser,
                                 const HttpClient::BodySink& sink) {
    std::vector<char> bytes(kReadBytes);
    while (!parser.is_done()) {
      auto& body = parser.get().body();
      body.data = bytes.data();
      body.size = bytes.size();
      SetDeadline(options_.stall_timeout);
      auto [failure, n] = co_await http::async_read_some(stream_, buffer_, parser, kTuple);
      if (failure == http::error::need_buffer) failure = {};
      const size_t n_got = bytes.size() - body.size;
      if (n_got > 0 && !sink(reply_, std::string_view(bytes.data(), n_got))) {
        reply_.left = true;
        co_return;
      }
      if (failure) {
        Fail(failure, "stopped inside its answer");
        co_return;
      }
    }
  }

  // The next wait ends after `wait`, at the end of the exchange's time, or when it is time to leave.
  TimePoint DeadlineOf(std::chrono::milliseconds wait) const {
    const TimePoint deadline = std::min(Clock::now() + wait, begin_ + options_.timeout);
    return ask_.leave_at ? std::min(deadline, *ask_.leave_at) : deadline;
  }
  void SetDeadline(std::chrono::milliseconds wait) { stream_.expires_at(DeadlineOf(wait)); }

  bool TakeLeave(const error_code& failure) {
    reply_.left = failure == beast::error::timeout && ask_.leave_at && Clock::now() >= *ask_.leave_at;
    return reply_.left;
  }

  void FailLookUp(const error_code& failure) {
    reply_.failure =
        Failure{.kind = FailureKind::kConnect,
                .detail = fmt::format("{}: the name {} is not found: {}", options_.url.ToString(),
                                      options_.url.host, failure.message())};
  }

  void FailConnect(const error_code& failure) {
    reply_.failure = Failure{.kind = FailureKind::kConnect,
                             .detail = fmt::format("{}: {}", options_.url.ToString(), failure.message())};
  }

  void Fail(const error_code& failure, std::string_view what) {
    if (TakeLeave(failure)) return;
    if (failure == beast::error::timeout) {
      const bool whole = Clock::now() >= begin_ + options_.timeout;
      const auto limit = whole ? options_.timeout : options_.stall_timeout;
      reply_.failure = Failure{.kind = whole ? FailureKind::kTimeout : FailureKind::kStalled,
                               .detail = fmt::format("the server {} for {} s", what,
                                                     std::chrono::duration<double>(limit).count())};
      return;
    }
    const bool is_http = failure.category() == http::make_error_code(http::error::bad_method).category();
    const bool ended = failure == http::error::end_of_stream || failure == http::error::partial_message;
    reply_.failure =
        Failure{.kind = is_http && !ended ? FailureKind::kMalformedHttp : FailureKind::kClosedEarly,
                .detail = fmt::format("the server {}: {}", what, failure.message())};
  }

  const HttpClientOptions& options_;
  const HttpAsk& ask_;
  TimePoint begin_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  HttpReply reply_;
};

}  // namespace

asio::awaitable<HttpReply> HttpClient::Ask(const HttpAsk& ask, const BodySink& sink) const {
  Exchange exchange(options_, ask, co_await asio::this_coro::executor);
  HttpReply reply = co_await exchange.Run(sink);
  co_return reply;
}

}  // namespace millrace::loadgen
