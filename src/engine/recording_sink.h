#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/request.h"

namespace millrace::engine {

// A TokenSink for tests: keeps everything, lets other threads wait for it. Any thread.
class RecordingSink : public TokenSink {
 public:
  void OnToken(const TokenEvent& event) override {
    std::lock_guard lock(mutex_);
    events_.push_back(event);
    changed_.notify_all();
  }

  void OnFinish(const FinishEvent& event) override {
    std::lock_guard lock(mutex_);
    ++finishes_;
    finish_ = event;
    changed_.notify_all();
  }

  // The end, or nullopt when it has not come within `timeout`.
  std::optional<FinishEvent> WaitForFinish(std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [this] { return finish_.has_value(); });
    return finish_;
  }

  bool WaitForTokens(size_t n, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return events_.size() >= n; });
  }

  std::vector<TokenId> tokens() const {
    std::lock_guard lock(mutex_);
    std::vector<TokenId> ids;
    for (const TokenEvent& event : events_) ids.push_back(event.token);
    return ids;
  }
  std::vector<TokenEvent> events() const {
    std::lock_guard lock(mutex_);
    return events_;
  }
  // How often OnFinish was called: must be once.
  int finishes() const {
    std::lock_guard lock(mutex_);
    return finishes_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenEvent> events_;     // guarded by mutex_
  std::optional<FinishEvent> finish_;  // guarded by mutex_
  int finishes_ = 0;                   // guarded by mutex_
};

}  // namespace millrace::engine
