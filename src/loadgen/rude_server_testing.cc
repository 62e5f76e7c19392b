#include "loadgen/rude_server_testing.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"

namespace millrace::loadgen {

void RudePeer::Send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void RudePeer::SendStreamHead() const {
  Send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n");
}

void RudePeer::SendText(std::string_view text) const {
  Send(fmt::format("data: {{\"choices\": [{{\"index\": 0, \"delta\": {{\"content\": {}}}}}]}}\n\n",
                   boost::json::serialize(boost::json::string(text))));
}

void RudePeer::SendEnd(int64_t prompt_tokens, int64_t completion_tokens, int64_t cached_tokens) const {
  Send("data: {\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n");
  Send(
      fmt::format("data: {{\"choices\": [], \"usage\": {{\"prompt_tokens\": {}, \"completion_tokens\": {}, "
                  "\"prompt_tokens_details\": {{\"cached_tokens\": {}}}}}}}\n\ndata: [DONE]\n\n",
                  prompt_tokens, completion_tokens, cached_tokens));
}

void RudePeer::SendAnswer(std::string_view status_line, std::string_view headers,
                          std::string_view body) const {
  Send(fmt::format("HTTP/1.1 {}\r\n{}Content-Length: {}\r\nConnection: close\r\n\r\n{}", status_line, headers,
                   body.size(), body));
}

void RudePeer::WaitUntilGone() const {
  pollfd gone{.fd = socket_, .events = POLLIN, .revents = 0};
  ::poll(&gone, 1, 5000);
}

// Threads of connections share it and end by themselves: each of their waits does.
struct RudeServer::Shared {
  Handler handler;
  int listener = -1;
  std::atomic<bool> stopping{false};
  std::thread acceptor;
  std::mutex mutex;
  std::vector<std::thread> threads;  // guarded by mutex

  void Accept() {
    while (!stopping) {
      const int socket = ::accept(listener, nullptr, nullptr);
      if (socket < 0) break;
      const std::lock_guard lock(mutex);
      threads.emplace_back([this, socket] { Serve(socket); });
    }
  }

  void Serve(int socket) const {
    const timeval limit{.tv_sec = 5, .tv_usec = 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    std::string request;
    size_t head_end = std::string::npos;
    size_t length = 0;
    char bytes[16384];
    while (head_end == std::string::npos || request.size() < head_end + 4 + length) {
      const ssize_t n = ::recv(socket, bytes, sizeof bytes, 0);
      if (n <= 0) break;
      request.append(bytes, static_cast<size_t>(n));
      head_end = request.find("\r\n\r\n");
      if (head_end == std::string::npos) continue;
      const size_t field = request.find("Content-Length: ");
      if (field < head_end) length = static_cast<size_t>(std::atoll(request.c_str() + field + 16));
    }
    const size_t path = request.find(' ') + 1;
    if (head_end != std::string::npos) {
      handler(RudePeer(socket), std::string_view(request).substr(path, request.find(' ', path) - path),
              std::string_view(request).substr(head_end + 4));
    }
    ::close(socket);
  }
};

RudeServer::RudeServer(Handler handler) : shared_(std::make_shared<Shared>()) {
  shared_->handler = std::move(handler);
  shared_->listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  MILLRACE_CHECK(::bind(shared_->listener, generic, size) == 0 && ::listen(shared_->listener, 128) == 0 &&
                     ::getsockname(shared_->listener, generic, &size) == 0,
                 "a free port of the loopback device");
  port_ = ntohs(address.sin_port);
  shared_->acceptor = std::thread([shared = shared_.get()] { shared->Accept(); });
}

RudeServer::~RudeServer() {
  shared_->stopping = true;
  ::shutdown(shared_->listener, SHUT_RDWR);
  shared_->acceptor.join();
  ::close(shared_->listener);
  for (std::thread& thread : shared_->threads) thread.join();
}

std::string RudeServer::url() const {
  return fmt::format("http://127.0.0.1:{}", port_);
}

}  // namespace millrace::loadgen
