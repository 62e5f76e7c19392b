#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace::api {

// A few threads for work that is too long for an I/O thread (decoding a body, encoding a prompt). Its length
// is bounded by the callers: each connection has one request under way. Any thread may call Add.
class WorkQueue {
 public:
  explicit WorkQueue(int n_threads);
  // Finishes what runs, drops what waits.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void Add(std::function<void()> task);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool stop_ = false;                        // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace millrace::api
