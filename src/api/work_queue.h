#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace millrace::api {

// A few threads for work that is too long for an I/O thread (decoding a body, encoding a prompt), and a
// bounded queue before them. Any thread may call the public methods.
class WorkQueue {
 public:
  enum class Ticket : uint64_t {};  // of one task

  WorkQueue(int n_threads, size_t max_waiting);
  // Finishes what runs, drops what waits.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Nothing, and the task is dropped, when max_waiting tasks wait already.
  std::optional<Ticket> Add(std::function<void()> task);
  // Drops the task if it still waits.
  void Remove(Ticket ticket);

 private:
  struct Task {
    Ticket ticket{};
    std::function<void()> run;
  };

  void Run();

  const size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Task> tasks_;    // guarded by mutex_
  uint64_t next_ticket_ = 0;  // guarded by mutex_
  bool stop_ = false;         // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace millrace::api
