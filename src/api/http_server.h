#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/api_error.h"
#include "api/exchange.h"
#include "base/ledger.h"
#include "base/planned_memory.h"
#include "base/result.h"

namespace millrace::api {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address or a name; "0.0.0.0" and "::" are all interfaces
  uint16_t port = 8000;            // 0: any free one

  int max_connections = 1024;
  size_t max_header_bytes = 64 << 10;   // request line and headers; more is 431
  size_t max_body_bytes = 32 << 20;     // one request; more is 413
  size_t max_bodies_bytes = 256 << 20;  // all that are being read or not yet decoded; more is 503
  size_t max_outputs_bytes = 64 << 20;  // of all answers together, beside 256 KiB of each connection; a whole
                                        // answer that finds no room is 503, a stream counts as gone
  size_t max_output_bytes = 1 << 20;    // of a stream, queued for one client beside the largest single write;
                                        // more and it counts as gone
  std::chrono::milliseconds idle_timeout{75'000};        // between requests of one connection
  std::chrono::milliseconds header_timeout{20'000};      // request line and headers, from their first byte
  std::chrono::milliseconds body_timeout{60'000};        // the body, from the headers' end
  std::chrono::milliseconds write_timeout{30'000};       // each 64 KiB of an answer
  std::chrono::milliseconds keep_alive_interval{5'000};  // silence of a stream before a filler is sent
};

// Called on the I/O thread for every request; see Exchange for how to answer.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<Exchange>)>;

// Called on the I/O thread about requests that the handler does not see; either may be empty. `head` is the
// request without its body, or as much of its head as could be read.
struct HttpHooks {
  // Asked before a body is read; an answer is sent instead of reading it, and the connection closes.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> admit;
  // Told of a request that the server itself has refused.
  std::function<void(const HttpRequest& head, const ApiError& error)> refused;
};

struct HttpServerStats {
  uint64_t connections = 0;   // open now
  uint64_t refused = 0;       // turned away because of max_connections
  uint64_t malformed = 0;     // requests refused before the handler: not HTTP/1.x, too large, no memory
  uint64_t slow_readers = 0;  // answers ended because of max_output_bytes or write_timeout
  uint64_t disconnected = 0;  // answers that the client did not wait for
  uint64_t body_bytes = 0;    // reserved now, of max_bodies_bytes
};

// HTTP/1.1 over TCP on one I/O thread of its own: one coroutine a connection, keep-alive, a deadline on every
// read and write. While an answer is produced a read stays pending, so a client that leaves is noticed at
// once. A client that shuts down its sending side counts as gone, except for an answer that is complete. More
// than 64 KiB sent ahead of an answer are dropped, and the connection closes after it. Any thread may call
// the public methods.
class HttpServer {
 public:
  // Takes the address, so that a server which loads for minutes learns at once that its port is in use;
  // nothing is accepted yet. Error kIo names address and reason.
  static Result<std::unique_ptr<HttpServer>> Bind(const HttpServerOptions& options);
  // Closes everything at once.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The most that a server with these options holds: connections, request bodies, queued output.
  static std::vector<PlannedMemory> PlanMemory(const HttpServerOptions& options);
  // Opens an account for each of these lines; call before Serve. `ledger` outlives the server.
  void OpenAccounts(MemoryLedger& ledger);

  // Listens and starts the I/O thread; call once. Error kIo as above.
  Status Serve(HttpHandler handler, HttpHooks hooks = {});

  // The bound address as clients write it, "127.0.0.1:8000", and its port.
  std::string address() const;
  uint16_t port() const;

  HttpServerStats stats() const;

  // Goes on accepting and answering, so that probes and late clients are told what happens, but from here on
  // every answer is its connection's last: clients turn to other servers.
  void BeginDrain();

  // Refuses new connections, closes idle ones, waits until all answers have left or `deadline`, closes what
  // is left and joins the I/O thread. The handler is not called any more and posted tasks are dropped.
  void Shutdown(std::chrono::steady_clock::time_point deadline);

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::api
