#pragma once

#include "base/result.h"

namespace millrace::app {

// Turns Ctrl-C into something to poll for. While it lives, SIGINT does not end the process: create it before
// any thread is started, because threads inherit the block. One thread.
class InterruptSignal {
 public:
  static Result<InterruptSignal> Block();
  InterruptSignal(InterruptSignal&& other) noexcept;
  InterruptSignal& operator=(InterruptSignal&&) = delete;
  // SIGINT does again what it did by default.
  ~InterruptSignal();

  // Readable while an interrupt is pending.
  int fd() const { return fd_; }
  // Whether there was one (or several) since the last call.
  bool Take();

 private:
  explicit InterruptSignal(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace millrace::app
