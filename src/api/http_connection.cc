#include "api/http_connection.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include <fmt/format.h>

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "api/api_error.h"
#include "api/buffered_exchange.h"
#include "api/error_response.h"
#include "base/log.h"
#include "base/units.h"

namespace millrace::api {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr auto kTuple = asio::experimental::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kSliceBytes = 64 << 10;         // of an answer, under one write deadline
constexpr int kMaxUnsentBytes = 128 << 10;       // in the kernel, before a write to it waits
constexpr size_t kMaxPipelinedBytes = 64 << 10;  // kept of what is sent ahead of an answer
constexpr size_t kCoroutineBytes = 16 << 10;     // frames, handlers, socket and timers of one connection
constexpr size_t kOwnOutputBytes = 256 << 10;    // of a connection's queued output, whatever others leave
constexpr size_t kLastWordBytes = 4 << 10;       // of that, for what a stream without room ends with
constexpr int kMaxRefusals = 64;                 // connections above the limit that are told so, at a time

bool IsHttpError(const error_code& failure) {
  return failure.category() == http::make_error_code(http::error::bad_method).category();
}

// What to tell a client whose request could not be read; nothing when there is nobody to tell.
std::optional<ApiError> RequestError(const error_code& failure, const HttpServerOptions& options) {
  if (!IsHttpError(failure) || failure == http::error::end_of_stream ||
      failure == http::error::partial_message)
    return std::nullopt;
  if (failure == http::error::body_limit) {
    return ApiError{ApiErrorKind::kBodyTooLarge,
                    fmt::format("The request body is larger than the {} bytes that this server accepts.",
                                options.max_body_bytes),
                    ""};
  }
  if (failure == http::error::header_limit || failure == http::error::buffer_overflow) {
    return ApiError{ApiErrorKind::kHeadersTooLarge,
                    fmt::format("The request line and headers are larger than the {} bytes that this server "
                                "accepts.",
                                options.max_header_bytes),
                    ""};
  }
  return ApiError{ApiErrorKind::kMalformedHttp,
                  fmt::format("The request is not HTTP/1.1: {}.", failure.message()), ""};
}

// What the parser lets through and this server does not take.
std::optional<ApiError> HeaderError(const http::request_header<>& header) {
  const size_t n_hosts = header.count(http::field::host);
  if (n_hosts > 1 || (n_hosts == 0 && header.version() >= 11)) {
    return ApiError{ApiErrorKind::kMalformedHttp,
                    fmt::format("The request has {} Host headers; HTTP/1.1 asks for one.", n_hosts), ""};
  }
  const auto [begin, end] = header.equal_range(http::field::transfer_encoding);
  for (auto field = begin; field != end; ++field) {
    if (beast::iequals(field->value(), "chunked")) continue;
    return ApiError{ApiErrorKind::kUnsupportedTransferEncoding,
                    fmt::format("Transfer-Encoding '{}' is not supported: send the body as it is, with "
                                "Content-Length or 'chunked' alone.",
                                std::string_view(field->value().data(), field->value().size())),
                    ""};
  }
  return std::nullopt;
}

struct AnswerMode {
  bool keep_alive = true;
  bool http_1_0 = false;
  bool head_only = false;
};
constexpr AnswerMode kLastAnswer = {false, false, false};

using Parser = http::request_parser<http::string_body>;

HttpRequest ToHead(const http::request_header<>& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  const RequestTarget target = SplitTarget({message.target().data(), message.target().size()});
  request.path = std::string(target.path);
  request.query = std::string(target.query);
  for (const auto& field : message)
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  return request;
}

}  // namespace

uint64_t ConnectionBytes(const HttpServerOptions& options) {
  return options.max_header_bytes + kMaxPipelinedBytes + kReadBytes + kCoroutineBytes;
}

std::vector<PlannedMemory> HttpServer::PlanMemory(const HttpServerOptions& options) {
  const auto connections = static_cast<uint64_t>(options.max_connections + kMaxRefusals);
  return {{"connections", connections * ConnectionBytes(options), "max-connections x max-header-size"},
          {"request bodies", options.max_bodies_bytes, "max-bodies-size"},
          {"queued output",
           options.max_outputs_bytes + static_cast<uint64_t>(options.max_connections) * kOwnOutputBytes,
           fmt::format("max-unread-total + max-connections x {}", HumanBytes(kOwnOutputBytes))}};
}

void PostGate::Post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (context_ != nullptr) asio::post(*context_, std::move(task));
}

void PostGate::Close() {
  const std::lock_guard lock(mutex_);
  context_ = nullptr;
}

// One client's connection: a coroutine that reads a request, hands it to the handler, writes the answer as it
// comes and starts again; beside it, while an answer is under way, a second one that reads.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(asio::ip::tcp::socket socket, HttpShared& shared)
      : stream_(std::move(socket)), shared_(shared), wake_(stream_.get_executor()) {
    shared_.connections.insert(this);
    if (shared_.connections_account != nullptr)
      shared_.connections_account->Add(ConnectionBytes(shared_.options));
    if (shared_.outputs_account != nullptr) own_outputs_->SetAccount(*shared_.outputs_account);
    shared_.stats.connections.fetch_add(1, std::memory_order_relaxed);
  }
  ~HttpConnection() {
    shared_.connections.erase(this);
    if (shared_.connections_account != nullptr)
      shared_.connections_account->Remove(ConnectionBytes(shared_.options));
    shared_.stats.connections.fetch_sub(1, std::memory_order_relaxed);
  }

  void Start() { Spawn(&HttpConnection::Run); }
  void StartRefusal() { Spawn(&HttpConnection::RunRefusal); }

  bool idle() const { return idle_; }
  void Close() { stream_.close(); }

 private:
  // Whether the connection may carry another request.
  enum class Next : bool { kClose, kKeep };

  void Spawn(asio::awaitable<void> (HttpConnection::*coroutine)()) {
    const auto self = shared_from_this();
    asio::co_spawn(
        stream_.get_executor(), [self, coroutine] { return ((*self).*coroutine)(); },
        [self](std::exception_ptr exception) { self->OnEnd(exception); });
  }

  // Memory ran out, at worst: the connection ends, the server goes on.
  void OnEnd(std::exception_ptr exception) {
    if (!exception) return;
    try {
      std::rethrow_exception(exception);
    } catch (const std::exception& error) {
      spdlog::error("a connection ended because of an exception: {}", error.what());
    }
    if (exchange_) {
      exchange_->MarkGone();
      exchange_->MarkDelivered();  // its wake-up refers to this connection
    }
    Close();
  }

  asio::awaitable<void> RunRefusal() {
    shared_.stats.refused.fetch_add(1, std::memory_order_relaxed);
    HttpResponse response = ErrorResponse(
        {ApiErrorKind::kOverloaded,
         fmt::format("This server has {} connections open, as many as it accepts; retry shortly.",
                     shared_.options.max_connections),
         ""});
    co_await WriteWhole(std::move(response), kLastAnswer);
    co_await LingeringClose();
  }

  asio::awaitable<void> Run() {
    SetSocketOptions();
    Next next = Next::kKeep;
    while (next == Next::kKeep && !shared_.stopping) next = co_await ServeOne();
    co_await LingeringClose();
  }

  void SetSocketOptions() {
    error_code ignored;
    stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    // What a client does not read waits under max_output_bytes: the kernel alone would take megabytes.
    (void)::setsockopt(stream_.socket().native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsentBytes,
                       sizeof kMaxUnsentBytes);
  }

  asio::awaitable<Next> ServeOne() {
    if (!co_await WaitForFirstByte()) co_return Next::kClose;
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(shared_.options.max_header_bytes));
    parser.body_limit(shared_.options.max_body_bytes);
    ByteReservation body_memory;
    const error_code failure = co_await ReadRequest(parser, body_memory);
    if (refusal_ || failure) {
      if (!refusal_) refusal_ = RequestError(failure, shared_.options);
      if (refusal_) co_await Refuse(ToHead(parser.get()));
      co_return Next::kClose;
    }
    if (turned_away_) {
      co_await WriteWhole(*std::exchange(turned_away_, std::nullopt), kLastAnswer);
      co_return Next::kClose;
    }
    AnswerMode mode;
    mode.keep_alive = parser.get().keep_alive();
    mode.http_1_0 = parser.get().version() < 11;
    mode.head_only = parser.get().method() == http::verb::head;
    HttpRequest request = ToHead(parser.get());
    request.body = std::move(parser.get().body());
    request.body_memory = std::move(body_memory);
    request.body_memory.ShrinkTo(request.body.size());
    co_return co_await Answer(std::move(request), mode);
  }

  // False when the client has nothing more to ask.
  asio::awaitable<bool> WaitForFirstByte() {
    if (buffer_.size() > 0) co_return true;
    idle_ = true;
    stream_.expires_after(shared_.options.idle_timeout);
    const auto [failure, n] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kTuple);
    idle_ = false;
    buffer_.commit(n);
    co_return !failure;
  }

  // Sets refusal_ or turned_away_ when the headers are reason enough not to read on.
  asio::awaitable<error_code> ReadRequest(Parser& parser, ByteReservation& body_memory) {
    stream_.expires_after(shared_.options.header_timeout);
    const auto [header_failure, header_bytes] =
        co_await http::async_read_header(stream_, buffer_, parser, kTuple);
    if (header_failure) co_return header_failure;
    if ((refusal_ = HeaderError(parser.get()))) co_return error_code{};
    if (parser.is_done()) co_return error_code{};  // no body
    if (shared_.hooks.admit) turned_away_ = shared_.hooks.admit(ToHead(parser.get()));
    if (turned_away_) co_return error_code{};
    std::optional<ByteReservation> reserved = ReserveBody(parser);
    if (!reserved) {
      refusal_ = ApiError{
          ApiErrorKind::kOverloaded,
          "The bodies of the requests in flight fill the memory set aside for them; retry shortly.", ""};
      co_return error_code{};
    }
    body_memory = *std::move(reserved);
    stream_.expires_after(shared_.options.body_timeout);
    if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      const auto [failure, n] = co_await asio::async_write(stream_, asio::buffer(kContinue), kTuple);
      if (failure) co_return failure;
    }
    const auto [failure, n] = co_await http::async_read(stream_, buffer_, parser, kTuple);
    co_return failure;
  }

  // Bodies are planned memory: each request reserves its length, or the limit when it does not say. Nothing
  // when too much is reserved already.
  std::optional<ByteReservation> ReserveBody(const Parser& parser) {
    const auto length = parser.content_length();
    return shared_.bodies->Reserve(length             ? static_cast<size_t>(*length)
                                   : parser.chunked() ? shared_.options.max_body_bytes
                                                      : 0);
  }

  asio::awaitable<Next> Answer(HttpRequest request, AnswerMode mode) {
    exchange_ = std::make_shared<BufferedExchange>(
        [gate = shared_.gate](std::function<void()> task) { gate->Post(std::move(task)); },
        OutputRoom{shared_.options.max_output_bytes, own_outputs_, shared_.outputs, kOwnOutputBytes,
                   shared_.options.max_outputs_bytes, kLastWordBytes},
        DialectOf(request.path));
    exchange_->SetWake([this] { OnExchangeChange(); });
    stream_.expires_never();  // of the watching read; each write sets its own
    watching_ = true;
    Spawn(&HttpConnection::WatchForDisconnect);
    shared_.handler(std::move(request), exchange_);
    const bool delivered = co_await WriteAnswer(*exchange_, mode);
    if (!delivered) {
      auto& counter = exchange_->too_slow() ? shared_.stats.slow_readers : shared_.stats.disconnected;
      counter.fetch_add(1, std::memory_order_relaxed);
      exchange_->MarkGone();
    }
    exchange_->MarkDelivered();
    co_await StopWatching();
    const bool keep =
        delivered && mode.keep_alive && !overrun_ && !NothingMoreComes() && !exchange_->failed();
    exchange_.reset();
    co_return keep ? Next::kKeep : Next::kClose;
  }

  // A client that was given up for not reading blocks the write that is under way, until its deadline: that
  // ends here. Cancelling would not do: between two parts of a write there is nothing to cancel.
  void OnExchangeChange() {
    wake_.cancel();
    if (exchange_->too_slow()) Reset();
  }

  // The client has ended its sending side, and no request that it sent ahead is left.
  bool NothingMoreComes() const { return ended_sending_ && buffer_.size() == 0; }

  // Closes and frees what the kernel holds for a client that does not read, which a plain close would keep
  // for minutes.
  void Reset() {
    error_code ignored;
    stream_.socket().set_option(asio::socket_base::linger(true, 0), ignored);
    Close();
  }

  // True when the client took what was written.
  bool Written(const error_code& failure) {
    if (failure == beast::error::timeout && exchange_) exchange_->MarkTooSlow();
    return !failure;
  }

  // Beside the answer; whatever happens, its end is told to StopWatching.
  asio::awaitable<void> WatchForDisconnect() {
    bool failed = false;
    try {
      co_await ReadAhead();
    } catch (const std::exception& error) {
      spdlog::error("a connection's reading ended because of an exception: {}", error.what());
      failed = true;
    }
    watching_ = false;
    wake_.cancel();
    if (failed) exchange_->MarkGone();
  }

  // Keeps a read pending while the handler works: what arrives is the next request's beginning, an end or an
  // error means that nobody waits for the answer. A whole answer is sent all the same: to a client that has
  // only ended its sending side it arrives.
  asio::awaitable<void> ReadAhead() {
    while (true) {
      const auto [failure, n] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kTuple);
      buffer_.commit(n);
      if (failure && !stop_watching_) {
        ended_sending_ = true;
        if (!exchange_->ended()) exchange_->MarkGone();
      }
      if (failure || stop_watching_) co_return;
      if (buffer_.size() > kMaxPipelinedBytes) {  // an end is only seen behind all that is sent
        buffer_.clear();
        overrun_ = true;
      }
    }
  }

  asio::awaitable<void> StopWatching() {
    stop_watching_ = true;
    if (watching_) stream_.cancel();
    while (watching_) co_await Sleep(std::chrono::hours(1));
    stop_watching_ = false;
  }

  // Until wake_ is cancelled or `duration` has passed; true in the latter case.
  asio::awaitable<bool> Sleep(std::chrono::steady_clock::duration duration) {
    wake_.expires_after(duration);
    const auto [failure] = co_await wake_.async_wait(kTuple);
    co_return !failure;
  }

  // True when the whole answer was handed to the system.
  asio::awaitable<bool> WriteAnswer(BufferedExchange& exchange, AnswerMode& mode) {
    bool head_sent = false;
    while (!exchange.gone()) {
      if (std::optional<HttpResponse> head = exchange.TakeHead()) {
        mode.keep_alive = mode.keep_alive && !shared_.draining && !shared_.stopping && !overrun_ &&
                          !NothingMoreComes() && !(exchange.streaming() && mode.http_1_0);
        if (!exchange.streaming()) co_return co_await WriteWhole(std::move(*head), mode);
        if (!co_await WriteStreamHead(*head, mode)) co_return false;
        head_sent = true;
        continue;  // the client may have left meanwhile, and nothing would end a sleep
      }
      if (exchange.has_output()) {
        if (!co_await WriteStreamBytes(exchange, exchange.TakeOutput(), mode)) co_return false;
        continue;
      }
      if (exchange.ended()) co_return co_await EndStream(exchange, mode);
      const bool silent = co_await Sleep(shared_.options.keep_alive_interval);
      if (silent && head_sent && !exchange.has_output() && !exchange.ended() && !exchange.gone()) {
        if (!co_await WriteStreamBytes(exchange, exchange.IdleFiller(), mode)) co_return false;
      }
    }
    co_return false;
  }

  template <typename Message>
  void SetHeaders(Message& message, const HttpResponse& response, const AnswerMode& mode) {
    message.result(static_cast<unsigned>(response.status));
    message.version(mode.http_1_0 ? 10 : 11);
    message.set(http::field::server, "millrace");
    if (!response.content_type.empty()) message.set(http::field::content_type, response.content_type);
    for (const auto& [name, value] : response.headers) message.set(name, value);
    message.keep_alive(mode.keep_alive);
  }

  asio::awaitable<bool> WriteWhole(HttpResponse response, const AnswerMode& mode) {
    http::response<http::string_body> message;
    SetHeaders(message, response, mode);
    message.body() = std::move(response.body);
    const bool has_body = response.status != 204 && response.status != 304;
    if (has_body) message.content_length(message.body().size());
    http::response_serializer<http::string_body> serializer(message);
    if (mode.head_only) {
      stream_.expires_after(shared_.options.write_timeout);
      const auto [failure, n] = co_await http::async_write_header(stream_, serializer, kTuple);
      co_return Written(failure);
    }
    while (!serializer.is_done()) {
      stream_.expires_after(shared_.options.write_timeout);
      const auto [failure, n] = co_await http::async_write_some(stream_, serializer, kTuple);
      if (!Written(failure)) co_return false;
    }
    co_return true;
  }

  asio::awaitable<bool> WriteStreamHead(const HttpResponse& head, const AnswerMode& mode) {
    http::response<http::empty_body> message;
    SetHeaders(message, head, mode);
    if (!mode.http_1_0) message.chunked(true);
    http::response_serializer<http::empty_body> serializer(message);
    stream_.expires_after(shared_.options.write_timeout);
    const auto [failure, n] = co_await http::async_write_header(stream_, serializer, kTuple);
    co_return Written(failure);
  }

  asio::awaitable<bool> WriteStreamBytes(BufferedExchange& exchange, std::string bytes,
                                         const AnswerMode& mode) {
    for (size_t at = 0; at < bytes.size() && !exchange.gone(); at += kSliceBytes) {
      const asio::const_buffer slice(bytes.data() + at, std::min(kSliceBytes, bytes.size() - at));
      stream_.expires_after(shared_.options.write_timeout);
      error_code failure;
      size_t n = 0;
      if (mode.http_1_0) {
        std::tie(failure, n) = co_await asio::async_write(stream_, slice, kTuple);
      } else {
        std::tie(failure, n) = co_await asio::async_write(stream_, http::make_chunk(slice), kTuple);
      }
      if (!Written(failure)) co_return false;
    }
    co_return !exchange.gone();
  }

  asio::awaitable<bool> EndStream(BufferedExchange& exchange, const AnswerMode& mode) {
    if (mode.http_1_0 || exchange.failed()) co_return true;
    stream_.expires_after(shared_.options.write_timeout);
    const auto [failure, n] = co_await asio::async_write(stream_, http::make_chunk_last(), kTuple);
    co_return Written(failure);
  }

  asio::awaitable<void> Refuse(HttpRequest head) {
    shared_.stats.malformed.fetch_add(1, std::memory_order_relaxed);
    if (shared_.hooks.refused) shared_.hooks.refused(head, *refusal_);
    HttpResponse response = ErrorResponse(*refusal_, {}, {DialectOf(head.path), {}});
    co_await WriteWhole(std::move(response), kLastAnswer);
  }

  // Closing with unread input would make the kernel reset the connection and take our last answer with it:
  // close our side, then swallow what still comes, for a moment.
  asio::awaitable<void> LingeringClose() {
    constexpr size_t kMaxSwallowedBytes = 8 << 20;
    error_code ignored;
    if (!stream_.socket().is_open()) co_return;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    stream_.expires_after(std::chrono::seconds(1));
    buffer_.clear();
    for (size_t swallowed = 0; swallowed < kMaxSwallowedBytes;) {
      const auto [failure, n] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kTuple);
      if (failure) break;
      swallowed += n;
    }
    stream_.close();
  }

  beast::tcp_stream stream_;
  HttpShared& shared_;
  asio::steady_timer wake_;
  beast::flat_buffer buffer_;
  const std::shared_ptr<ByteBudget> own_outputs_ = ByteBudget::Create(kOwnOutputBytes);
  std::shared_ptr<BufferedExchange> exchange_;  // of the request being answered
  std::optional<ApiError> refusal_;             // of a request that never reaches the handler
  std::optional<HttpResponse> turned_away_;     // the admit hook's answer
  bool idle_ = false;
  bool watching_ = false;
  bool stop_watching_ = false;
  bool ended_sending_ = false;
  bool overrun_ = false;  // requests sent ahead were dropped: the connection cannot go on
};

void StartConnection(asio::ip::tcp::socket socket, HttpShared& shared) {
  // Above kMaxRefusals they are dropped without a word.
  const auto open = static_cast<int>(shared.connections.size());
  if (open >= shared.options.max_connections + kMaxRefusals) {
    shared.stats.refused.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const auto connection = std::make_shared<HttpConnection>(std::move(socket), shared);
  if (open >= shared.options.max_connections) {
    connection->StartRefusal();
  } else {
    connection->Start();
  }
}

void CloseConnections(HttpShared& shared, bool all) {
  for (HttpConnection* connection : shared.connections)
    if (all || connection->idle()) connection->Close();
}

}  // namespace millrace::api
