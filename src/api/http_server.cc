#include "api/http_server.h"

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "api/http_connection.h"
#include "base/log.h"

namespace millrace::api {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct HttpServer::Impl {
  HttpShared shared;  // before the context, whose coroutines touch it when they are destroyed
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  uint16_t port = 0;
  std::thread thread;

  Error Failed(std::string_view what, const error_code& failure) const;
  Status Bind();
  asio::awaitable<void> Accept();
  void RunLoop();
  void StopAccepting();
  bool WaitForConnections(std::chrono::steady_clock::time_point deadline);
};

Error HttpServer::Impl::Failed(std::string_view what, const error_code& failure) const {
  const std::string_view remedy = failure == asio::error::address_in_use
                                      ? " (another process uses that port: choose another --port)"
                                      : "";
  return Error(ErrorCode::kIo, fmt::format("cannot {} {}:{}: {}{}", what, shared.options.host,
                                           shared.options.port, failure.message(), remedy));
}

Status HttpServer::Impl::Bind() {
  error_code failure;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(shared.options.host, std::to_string(shared.options.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, failure);
  if (failure) return Failed("resolve", failure);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), failure);
  if (failure) return Failed("open a socket for", failure);
  acceptor.set_option(tcp::acceptor::reuse_address(true), failure);
  if (failure) return Failed("prepare", failure);
  acceptor.bind(endpoint, failure);
  if (failure) return Failed("listen on", failure);
  port = acceptor.local_endpoint(failure).port();
  return {};
}

asio::awaitable<void> HttpServer::Impl::Accept() {
  constexpr auto kTuple = asio::experimental::as_tuple(asio::use_awaitable);
  asio::steady_timer pause(context);
  while (acceptor.is_open()) {
    auto [failure, socket] = co_await acceptor.async_accept(kTuple);
    if (!failure) {
      StartConnection(std::move(socket), shared);
      continue;
    }
    if (!acceptor.is_open()) break;
    // Out of file descriptors or memory: what is open may end meanwhile.
    spdlog::warn("cannot accept a connection: {}", failure.message());
    pause.expires_after(std::chrono::milliseconds(100));
    co_await pause.async_wait(kTuple);
  }
}

void HttpServer::Impl::RunLoop() {
  while (true) {
    try {
      context.run();
      return;
    } catch (const std::exception& error) {
      spdlog::error("a task of the I/O thread ended with an exception: {}", error.what());
    }
  }
}

void HttpServer::Impl::StopAccepting() {
  asio::post(context, [this] {
    shared.stopping = true;
    error_code ignored;
    acceptor.close(ignored);
    CloseConnections(shared, /*all=*/false);
  });
}

bool HttpServer::Impl::WaitForConnections(std::chrono::steady_clock::time_point deadline) {
  while (shared.stats.connections.load(std::memory_order_relaxed) > 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::Bind(const HttpServerOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->shared.options = options;
  impl->shared.bodies = ByteBudget::Create(options.max_bodies_bytes);
  impl->shared.outputs = ByteBudget::Create(options.max_outputs_bytes);
  impl->shared.gate = std::make_shared<PostGate>(impl->context);
  MILLRACE_RETURN_IF_ERROR(impl->Bind());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

void HttpServer::OpenAccounts(MemoryLedger& ledger) {
  std::vector<MemoryAccount*> accounts;
  for (const PlannedMemory& line : PlanMemory(impl_->shared.options))
    accounts.push_back(&ledger.Open(line.name, line.bytes));
  impl_->shared.connections_account = accounts[0];
  impl_->shared.bodies->SetAccount(*accounts[1]);
  impl_->shared.outputs_account = accounts[2];
  impl_->shared.outputs->SetAccount(*accounts[2]);
}

Status HttpServer::Serve(HttpHandler handler, HttpHooks hooks) {
  impl_->shared.handler = std::move(handler);
  impl_->shared.hooks = std::move(hooks);
  error_code failure;
  impl_->acceptor.listen(asio::socket_base::max_listen_connections, failure);
  if (failure) return impl_->Failed("listen on", failure);
  asio::co_spawn(
      impl_->context, [impl = impl_.get()] { return impl->Accept(); }, asio::detached);
  impl_->thread = std::thread([impl = impl_.get()] { impl->RunLoop(); });
  return {};
}

HttpServer::~HttpServer() {
  Shutdown(std::chrono::steady_clock::now());
}

uint16_t HttpServer::port() const {
  return impl_->port;
}

std::string HttpServer::address() const {
  const std::string& host = impl_->shared.options.host;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", host, port()) : fmt::format("{}:{}", host, port());
}

HttpServerStats HttpServer::stats() const {
  const auto& stats = impl_->shared.stats;
  HttpServerStats snapshot;
  snapshot.connections = stats.connections.load(std::memory_order_relaxed);
  snapshot.refused = stats.refused.load(std::memory_order_relaxed);
  snapshot.malformed = stats.malformed.load(std::memory_order_relaxed);
  snapshot.slow_readers = stats.slow_readers.load(std::memory_order_relaxed);
  snapshot.disconnected = stats.disconnected.load(std::memory_order_relaxed);
  snapshot.body_bytes = impl_->shared.bodies->reserved_bytes();
  return snapshot;
}

void HttpServer::BeginDrain() {
  asio::post(impl_->context, [this] { impl_->shared.draining = true; });
}

void HttpServer::Shutdown(std::chrono::steady_clock::time_point deadline) {
  if (!impl_->thread.joinable()) return;
  impl_->StopAccepting();
  if (!impl_->WaitForConnections(deadline)) {
    asio::post(impl_->context, [this] { CloseConnections(impl_->shared, /*all=*/true); });
    // Closing runs the connections' ends, which tell the handlers that their clients are gone.
    (void)impl_->WaitForConnections(std::chrono::steady_clock::now() + std::chrono::seconds(1));
  }
  impl_->shared.gate->Close();
  impl_->work.reset();
  impl_->context.stop();
  impl_->thread.join();
}

}  // namespace millrace::api
