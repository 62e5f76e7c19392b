#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// For tests only: a server over sockets that does what well-behaved ones do not.

namespace millrace::loadgen {

// The client's side of one request, on a thread of its own. Every call returns within seconds.
class RudePeer {
 public:
  explicit RudePeer(int socket) : socket_(socket) {}

  void Send(std::string_view bytes) const;
  // An answer of server-sent events, without length: it ends when the connection does.
  void SendStreamHead() const;
  void SendText(std::string_view text) const;  // a chunk with this content
  void SendEnd(int64_t prompt_tokens, int64_t completion_tokens, int64_t cached_tokens) const;
  void SendAnswer(std::string_view status_line, std::string_view headers, std::string_view body) const;
  // Says nothing until the client has gone, or for five seconds.
  void WaitUntilGone() const;

 private:
  int socket_;
};

// Listens on a free port of the loopback device; each connection is one request.
class RudeServer {
 public:
  // `body` is empty for GET. Called on the connection's thread, several at once.
  using Handler = std::function<void(const RudePeer& peer, std::string_view path, std::string_view body)>;

  explicit RudeServer(Handler handler);
  ~RudeServer();
  RudeServer(const RudeServer&) = delete;
  RudeServer& operator=(const RudeServer&) = delete;

  uint16_t port() const { return port_; }
  std::string url() const;

 private:
  struct Shared;
  uint16_t port_ = 0;
  std::shared_ptr<Shared> shared_;
};

}  // namespace millrace::loadgen
