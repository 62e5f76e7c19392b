#include "app/interrupt_signal.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace millrace::app {
namespace {

sigset_t InterruptSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

Result<InterruptSignal> InterruptSignal::Block() {
  const sigset_t set = InterruptSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) {
    return Error(ErrorCode::kIo, fmt::format("cannot watch for Ctrl-C: {}", std::strerror(errno)));
  }
  return InterruptSignal(fd);
}

InterruptSignal::InterruptSignal(InterruptSignal&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

InterruptSignal::~InterruptSignal() {
  if (fd_ < 0) return;
  Take();  // one that nobody asked for must not end the process now
  close(fd_);
  const sigset_t set = InterruptSet();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool InterruptSignal::Take() {
  bool any = false;
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof info) == sizeof info) any = true;
  return any;
}

}  // namespace millrace::app
