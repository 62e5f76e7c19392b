#include "app/line_reader.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace millrace::app {

std::optional<std::string> LineReader::TakeLine() {
  const size_t end = buffer_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = buffer_.size();
    if (!at_end_ || buffer_.empty()) return std::nullopt;
    searched_ = 0;
    return std::exchange(buffer_, {});
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  searched_ = 0;
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

Status LineReader::WaitForInput() {
  pollfd watched[2] = {{.fd = fd_, .events = POLLIN, .revents = 0},
                       {.fd = interrupt_.fd(), .events = POLLIN, .revents = 0}};
  while (poll(watched, 2, -1) < 0) {
    if (errno != EINTR) {
      return Error(ErrorCode::kIo, fmt::format("cannot wait for input: {}", std::strerror(errno)));
    }
  }
  if (interrupt_.Take()) {
    buffer_.clear();
    searched_ = 0;
    return Error(ErrorCode::kCancelled, "interrupted");
  }
  return {};
}

Result<std::optional<std::string>> LineReader::Next() {
  while (true) {
    if (std::optional<std::string> line = TakeLine()) return line;
    if (at_end_) return std::optional<std::string>();
    if (buffer_.size() > kMaxLineBytes) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("the line is longer than {} bytes; split it", kMaxLineBytes));
    }
    MILLRACE_RETURN_IF_ERROR(WaitForInput());
    std::array<char, 64 * 1024> part;
    const ssize_t n = read(fd_, part.data(), part.size());
    if (n < 0 && errno != EINTR && errno != EAGAIN) {
      return Error(ErrorCode::kIo, fmt::format("cannot read the input: {}", std::strerror(errno)));
    }
    if (n == 0) at_end_ = true;
    if (n > 0) buffer_.append(part.data(), static_cast<size_t>(n));
  }
}

}  // namespace millrace::app
