#pragma once

#include <optional>
#include <string>

#include "app/interrupt_signal.h"
#include "base/result.h"

namespace millrace::app {

// Reads lines from a descriptor, a terminal or a pipe, and can be interrupted while it waits. One thread.
class LineReader {
 public:
  // Neither descriptor nor signal is owned; both outlive the reader.
  LineReader(int fd, InterruptSignal& interrupt) : fd_(fd), interrupt_(interrupt) {}

  static constexpr size_t kMaxLineBytes = size_t{64} << 20;

  // The next line without its end ("\n" or "\r\n"); a last line without one counts. nullopt at the end of
  // the input. kCancelled when Ctrl-C came first, what was typed so far is dropped; kInvalidArgument for a
  // line over kMaxLineBytes; kIo when reading fails.
  Result<std::optional<std::string>> Next();

 private:
  std::optional<std::string> TakeLine();
  Status WaitForInput();

  int fd_;
  InterruptSignal& interrupt_;
  std::string buffer_;
  size_t searched_ = 0;  // of buffer_, known to hold no line end
  bool at_end_ = false;
};

}  // namespace millrace::app
