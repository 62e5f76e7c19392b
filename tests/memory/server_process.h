#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace millrace::testing {

// A server in a fresh process, looked at from outside: what it holds, by /proc and by its own accounts.
class ServerProcess {
 public:
  struct Account {
    uint64_t planned_bytes = 0, live_bytes = 0, peak_bytes = 0;
  };

  // `command`: a program that prints a line with http://HOST:PORT once it is ready, and its arguments.
  explicit ServerProcess(std::vector<std::string> command);
  // Kills it.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // 0: it did not start.
  uint16_t port() const { return port_; }
  // As /health tells them.
  std::map<std::string, Account> Accounts() const;
  // Anonymous memory, now and at its most since the process began; looked at every millisecond.
  uint64_t resident_bytes() const;
  uint64_t peak_resident_bytes() const { return peak_; }

 private:
  void Watch();

  pid_t process_ = -1;
  int output_ = -1;
  uint16_t port_ = 0;
  std::atomic<uint64_t> peak_{0};
  std::atomic<bool> stop_{false};
  std::thread watcher_;
};

}  // namespace millrace::testing
