#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace millrace {

// A fixed set of threads that share the tasks of one loop at a time. The calling thread works too.
//
// Threads take tasks one by one from a counter, so a thread that the machine has taken away holds up only the
// task it already has. Which thread runs which task is unspecified: results must not depend on it.
// ParallelFor may be called by one thread at a time and not from inside a task. It does not allocate.
class ThreadPool {
 public:
  // `n_threads` >= 1, the caller's thread included: n_threads - 1 threads are started.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Runs fn(task, worker) for every task in [0, n_tasks), worker in [0, size()), and returns when all are
  // done. Everything the caller wrote is visible to the tasks, everything they wrote is visible on return.
  void ParallelFor(size_t n_tasks, FunctionRef<void(size_t task, int worker)> fn);

 private:
  using TaskFn = FunctionRef<void(size_t, int)>;

  void WorkerLoop(int worker);
  void RunTasks(int worker);
  void WaitForNewEpoch(uint32_t seen) const;

  // High half: epoch, low half: tasks not yet taken. One word, so that taking a task proves which loop it is
  // of.
  std::atomic<uint64_t> state_{0};
  std::atomic<const TaskFn*> fn_{nullptr};
  std::atomic<uint32_t> n_tasks_{0};
  std::atomic<uint32_t> unfinished_{0};
  std::atomic<uint32_t> epoch_{0};  // the one workers sleep on; equals the high half of state_
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace millrace
