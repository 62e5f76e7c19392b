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
//
// Expensive tasks run one after the other on the first thread; cheap ones pass them on the others. What runs
// at once costs no more than the most expensive task and a cheap one on each other thread, and neither does
// what the allocator keeps for each thread.
class WorkQueue {
 public:
  enum class Ticket : uint64_t {};  // of one task

  // Tasks of up to `cheap_cost` are cheap.
  WorkQueue(int n_threads, size_t max_waiting, uint64_t cheap_cost = UINT64_MAX);
  // Finishes what runs, drops what waits.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Nothing, and the task is dropped, when max_waiting tasks wait already.
  std::optional<Ticket> Add(std::function<void()> task, uint64_t cost = 0);
  // Drops the task if it still waits.
  void Remove(Ticket ticket);

 private:
  struct Task {
    Ticket ticket{};
    std::function<void()> run;
    uint64_t cost = 0;
  };

  void Run(bool takes_all);
  // Takes the first task out of the queue, or the first cheap one; with mutex_ held.
  std::optional<Task> Take(bool takes_all);

  const size_t max_waiting_;
  const uint64_t cheap_cost_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Task> tasks_;    // guarded by mutex_
  uint64_t next_ticket_ = 0;  // guarded by mutex_
  bool stop_ = false;         // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace millrace::api
