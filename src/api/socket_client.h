#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// For tests: part of millrace_api_testing only.

namespace millrace::api {

struct ClientResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool complete = false;                       // false: the connection ended early
};

// A client that can do what well-behaved ones do not: send raw bytes, stop reading, leave at any moment.
// Blocking, every call with a deadline of 20 seconds; one thread.
class SocketClient {
 public:
  explicit SocketClient(uint16_t port, int receive_buffer_bytes = 0);
  ~SocketClient();
  SocketClient(const SocketClient&) = delete;
  SocketClient& operator=(const SocketClient&) = delete;

  bool connected() const { return socket_ >= 0; }
  void SendRaw(std::string_view bytes);
  // With Content-Length when there is a body; `headers` are whole lines with CRLF.
  void Send(std::string_view method, std::string_view path, std::string_view body = "",
            std::string_view headers = "");

  // One answer; `has_body` is false for HEAD.
  ClientResponse Read(bool has_body = true);
  ClientResponse Ask(std::string_view method, std::string_view path, std::string_view body = "");

  // Raw bytes read so far and not yet returned by Read contain `text`; false when the connection ended first.
  bool ReadUntil(std::string_view text);
  // True when the server has closed and nothing is left to read.
  bool ReadEnd();
  const std::string& unread() const { return input_; }
  void Close();
  void ShutdownSend();

 private:
  bool Fill();  // more input; false at the end
  std::optional<std::string> TakeLine();
  std::optional<std::string> TakeBytes(size_t n);

  int socket_ = -1;
  std::string input_;
};

// One request on a connection of its own.
ClientResponse AskOnce(uint16_t port, std::string_view method, std::string_view path,
                       std::string_view body = "");

// The data of each server-sent event of `body`; names of events and comments are left out.
std::vector<std::string> EventData(std::string_view body);

}  // namespace millrace::api
