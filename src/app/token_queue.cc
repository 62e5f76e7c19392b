#include "app/token_queue.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace millrace::app {

Result<std::shared_ptr<TokenQueue>> TokenQueue::Create() {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) {
    return Error(ErrorCode::kIo, fmt::format("cannot make an event descriptor: {}", std::strerror(errno)));
  }
  return std::shared_ptr<TokenQueue>(new TokenQueue(fd));
}

TokenQueue::~TokenQueue() {
  close(fd_);
}

void TokenQueue::OnToken(const engine::TokenEvent& event) {
  std::lock_guard lock(mutex_);
  waiting_.tokens.push_back(event);
  MarkTime();
  Wake();
}

void TokenQueue::OnFinish(const engine::FinishEvent& event) {
  std::lock_guard lock(mutex_);
  waiting_.finish = event;
  MarkTime();
  Wake();
}

TokenQueue::Taken TokenQueue::Take() {
  std::lock_guard lock(mutex_);
  eventfd_t count = 0;
  eventfd_read(fd_, &count);
  return std::exchange(waiting_, {});
}

TokenQueue::Times TokenQueue::times() const {
  std::lock_guard lock(mutex_);
  return times_.value_or(Times{});
}

void TokenQueue::MarkTime() {
  const auto now = std::chrono::steady_clock::now();
  if (!times_) times_ = Times{now, now};
  times_->last = now;
}

void TokenQueue::Wake() const {
  eventfd_write(fd_, 1);  // cannot fail: the counter is far from full
}

}  // namespace millrace::app
