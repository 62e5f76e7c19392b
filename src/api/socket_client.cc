#include "api/socket_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/event_stream.h"

namespace millrace::api {
namespace {

// A call with a timeout is interrupted when the process is stopped and goes on (a paused machine, a
// debugger).
template <typename Call>
ssize_t AgainWhenInterrupted(const Call& call) {
  ssize_t result = 0;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

SocketClient::SocketClient(uint16_t port, int receive_buffer_bytes) {
  socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
  const timeval limit{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (receive_buffer_bytes > 0)
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) Close();
}

SocketClient::~SocketClient() {
  Close();
}

void SocketClient::Close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void SocketClient::ShutdownSend() {
  ::shutdown(socket_, SHUT_WR);
}

void SocketClient::SendRaw(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent =
        AgainWhenInterrupted([&] { return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); });
    if (sent <= 0) return;  // the server has closed: reading will tell
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void SocketClient::Send(std::string_view method, std::string_view path, std::string_view body,
                        std::string_view headers) {
  std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: test\r\n{}", method, path, headers);
  if (!body.empty()) {
    request += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  }
  SendRaw(request + "\r\n" + std::string(body));
}

bool SocketClient::Fill() {
  char bytes[16384];
  const ssize_t n = AgainWhenInterrupted([&] { return ::recv(socket_, bytes, sizeof bytes, 0); });
  if (n <= 0) return false;
  input_.append(bytes, static_cast<size_t>(n));
  return true;
}

bool SocketClient::ReadUntil(std::string_view text) {
  while (input_.find(text) == std::string::npos)
    if (!Fill()) return false;
  return true;
}

bool SocketClient::ReadEnd() {
  if (!input_.empty()) return false;
  char byte = 0;
  return AgainWhenInterrupted([&] { return ::recv(socket_, &byte, 1, 0); }) == 0;
}

std::optional<std::string> SocketClient::TakeLine() {
  if (!ReadUntil("\r\n")) return std::nullopt;
  const size_t end = input_.find("\r\n");
  std::string line = input_.substr(0, end);
  input_.erase(0, end + 2);
  return line;
}

std::optional<std::string> SocketClient::TakeBytes(size_t n) {
  while (input_.size() < n)
    if (!Fill()) return std::nullopt;
  std::string bytes = input_.substr(0, n);
  input_.erase(0, n);
  return bytes;
}

ClientResponse SocketClient::Read(bool has_body) {
  ClientResponse response;
  std::optional<std::string> line = TakeLine();
  if (!line || line->size() < 12) return response;
  response.status = std::atoi(line->c_str() + 9);
  while ((line = TakeLine()) && !line->empty()) {
    const size_t colon = line->find(':');
    std::string name = line->substr(0, colon);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    response.headers[name] = line->substr(line->find_first_not_of(' ', colon + 1));
  }
  if (!line) return response;
  const bool chunked = response.headers.contains("transfer-encoding");
  if (!has_body || response.status == 204) {
    response.complete = true;
  } else if (chunked) {
    while ((line = TakeLine())) {
      size_t size = 0;
      std::from_chars(line->data(), line->data() + line->size(), size, 16);
      const std::optional<std::string> chunk = TakeBytes(size + 2);
      if (!chunk) break;
      response.body.append(*chunk, 0, size);
      if (size == 0) {
        response.complete = true;
        break;
      }
    }
  } else if (response.headers.contains("content-length")) {
    const std::optional<std::string> body =
        TakeBytes(static_cast<size_t>(std::atoll(response.headers["content-length"].c_str())));
    response.complete = body.has_value();
    response.body = body.value_or("");
  } else {
    while (Fill()) {
    }
    response.body = std::exchange(input_, {});
    response.complete = true;
  }
  return response;
}

ClientResponse SocketClient::Ask(std::string_view method, std::string_view path, std::string_view body) {
  Send(method, path, body);
  return Read(method != "HEAD");
}

ClientResponse AskOnce(uint16_t port, std::string_view method, std::string_view path, std::string_view body) {
  SocketClient client(port);
  return client.Ask(method, path, body);
}

std::vector<std::string> EventData(std::string_view body) {
  std::vector<std::string> data;
  EventStreamReader reader;
  const Result<std::vector<StreamEvent>> events = reader.Feed(std::string(body) + "\n\n");
  if (!events.ok()) return data;
  for (const StreamEvent& event : *events) data.push_back(event.data);
  return data;
}

}  // namespace millrace::api
