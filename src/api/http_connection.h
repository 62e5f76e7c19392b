#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "api/http_server.h"

// Heavy header (Boost.Asio): for http_server.cc and http_connection.cc only.

namespace millrace::api {

class HttpConnection;

// Lets threads that outlive the server's loop post to it without touching it once it has stopped.
class PostGate {
 public:
  explicit PostGate(boost::asio::io_context& context) : context_(&context) {}

  void Post(std::function<void()> task);
  // From here on tasks are dropped.
  void Close();

 private:
  std::mutex mutex_;
  boost::asio::io_context* context_;
};

// What the connections of one server share. Only the I/O thread touches it, but for `bodies`, `stats` and the
// gate.
struct HttpShared {
  HttpServerOptions options;
  HttpHandler handler;
  HttpHooks hooks;
  std::shared_ptr<PostGate> gate;
  std::unordered_set<HttpConnection*> connections;
  std::shared_ptr<ByteBudget> bodies;   // memory of the bodies that are being read or not yet decoded
  std::shared_ptr<ByteBudget> outputs;  // memory of what clients have not yet read, above each one's own part
  MemoryAccount* connections_account = nullptr;
  MemoryAccount* outputs_account = nullptr;
  bool draining = false;  // every answer is its connection's last
  bool stopping = false;  // and no request is read any more

  struct {
    std::atomic<uint64_t> connections{0}, refused{0}, malformed{0}, slow_readers{0}, disconnected{0};
  } stats;
};

// The most that one connection holds beside bodies and answers: what is read ahead, headers, coroutines.
uint64_t ConnectionBytes(const HttpServerOptions& options);

// Serves the connection until it ends; above the limit of connections it answers 503 and closes. `shared`
// outlives the io_context's tasks.
void StartConnection(boost::asio::ip::tcp::socket socket, HttpShared& shared);

// Closes every connection that waits for a request; with `all`, the others too.
void CloseConnections(HttpShared& shared, bool all);

}  // namespace millrace::api
