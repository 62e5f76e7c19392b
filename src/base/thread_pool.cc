#include "base/thread_pool.h"

#include <limits>

#include "base/check.h"

namespace millrace {
namespace {

// Bridges the gap between two loops of a decode step: some 10 us where a pause takes 50 ns, less elsewhere. A
// busy machine has the core back after that.
constexpr int kSpins = 200;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint32_t EpochOf(uint64_t state) {
  return static_cast<uint32_t>(state >> 32);
}
uint32_t UntakenOf(uint64_t state) {
  return static_cast<uint32_t>(state);
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
  MILLRACE_CHECK(n_threads >= 1, "a pool needs at least the caller's thread");
  for (int worker = 1; worker < n_threads; ++worker) {
    threads_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::ParallelFor(size_t n_tasks, TaskFn fn) {
  MILLRACE_CHECK(n_tasks <= std::numeric_limits<uint32_t>::max(), "too many tasks for one loop");
  if (n_tasks == 0) return;
  if (n_tasks == 1 || threads_.empty()) {
    for (size_t task = 0; task < n_tasks; ++task) fn(task, 0);
    return;
  }
  // No thread reads these three while we write them: all tasks of the previous loop were taken and finished,
  // so no compare-exchange in RunTasks can succeed until state_ is published below.
  fn_.store(&fn, std::memory_order_relaxed);
  n_tasks_.store(static_cast<uint32_t>(n_tasks), std::memory_order_relaxed);
  unfinished_.store(static_cast<uint32_t>(n_tasks), std::memory_order_relaxed);
  const uint32_t epoch = EpochOf(state_.load(std::memory_order_relaxed)) + 1;
  state_.store(uint64_t{epoch} << 32 | n_tasks, std::memory_order_release);
  // Sequentially consistent, so that a worker on its way to sleep either sees it or is seen by notify_all.
  epoch_.store(epoch);
  epoch_.notify_all();

  RunTasks(0);
  for (int spin = 0;; ++spin) {
    const uint32_t left = unfinished_.load(std::memory_order_acquire);
    if (left == 0) return;
    if (spin < kSpins) {
      Pause();
    } else {
      unfinished_.wait(left, std::memory_order_acquire);
    }
  }
}

void ThreadPool::RunTasks(int worker) {
  uint64_t state = state_.load(std::memory_order_acquire);
  while (UntakenOf(state) > 0) {
    const TaskFn* fn = fn_.load(std::memory_order_relaxed);
    const uint32_t n_tasks = n_tasks_.load(std::memory_order_relaxed);
    if (!state_.compare_exchange_weak(state, state - 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      continue;
    }
    // Success means the loop of this epoch is unfinished, so fn and n_tasks above are that loop's.
    (*fn)(n_tasks - UntakenOf(state), worker);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
    state = state_.load(std::memory_order_acquire);
  }
}

void ThreadPool::WaitForNewEpoch(uint32_t seen) const {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (epoch_.load(std::memory_order_acquire) != seen) return;
    Pause();
  }
  epoch_.wait(seen, std::memory_order_acquire);
}

void ThreadPool::WorkerLoop(int worker) {
  uint32_t seen = 0;
  while (true) {
    WaitForNewEpoch(seen);
    if (stop_.load()) return;
    seen = epoch_.load(std::memory_order_acquire);
    RunTasks(worker);
  }
}

}  // namespace millrace
