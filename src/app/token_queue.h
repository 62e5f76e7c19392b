#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

namespace millrace::app {

// A TokenSink that hands events to another thread, which waits for them with poll. The engine's thread
// writes, one other thread takes.
class TokenQueue : public engine::TokenSink {
 public:
  static Result<std::shared_ptr<TokenQueue>> Create();
  ~TokenQueue() override;

  void OnToken(const engine::TokenEvent& event) override;
  void OnFinish(const engine::FinishEvent& event) override;

  // Readable while there is something to take.
  int fd() const { return fd_; }

  struct Taken {
    std::vector<engine::TokenEvent> tokens;
    std::optional<engine::FinishEvent> finish;  // after `tokens`
  };
  // All that has come since the last call.
  Taken Take();

  // When the engine gave its first event and its last so far: not when they were taken.
  struct Times {
    std::chrono::steady_clock::time_point first, last;
  };
  Times times() const;

 private:
  explicit TokenQueue(int fd) : fd_(fd) {}
  // Both with mutex_ held.
  void MarkTime();
  void Wake() const;

  int fd_;  // an eventfd
  mutable std::mutex mutex_;
  Taken waiting_;               // guarded by mutex_
  std::optional<Times> times_;  // guarded by mutex_
};

}  // namespace millrace::app
