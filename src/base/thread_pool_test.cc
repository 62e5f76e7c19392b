#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

namespace millrace {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceForEveryCount) {
  for (int n_threads : {1, 2, 5}) {
    ThreadPool pool(n_threads);
    for (size_t n_tasks : {0, 1, 2, 3, 17, 1000}) {
      std::vector<std::atomic<int>> runs(n_tasks);
      std::atomic<bool> worker_in_range = true;
      pool.ParallelFor(n_tasks, [&](size_t task, int worker) {
        runs[task].fetch_add(1);
        if (worker < 0 || worker >= n_threads) worker_in_range = false;
      });
      for (size_t task = 0; task < n_tasks; ++task) EXPECT_EQ(runs[task], 1) << task << " of " << n_tasks;
      EXPECT_TRUE(worker_in_range);
    }
  }
}

// Back-to-back loops of changing sizes: a thread late from one loop must never take a task of the next with
// the old function. Plain (non-atomic) cells make the thread sanitizer check the promised visibility.
TEST(ThreadPool, LoopsBackToBackNeverMix) {
  ThreadPool pool(4);
  std::vector<uint64_t> cells(64);
  for (uint64_t round = 1; round <= 20000; ++round) {
    const size_t n_tasks = 2 + round % 37;
    pool.ParallelFor(n_tasks, [&](size_t task, int) { cells[task] = round * 100 + task; });
    for (size_t task = 0; task < n_tasks; ++task) ASSERT_EQ(cells[task], round * 100 + task);
  }
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(3);
}

}  // namespace
}  // namespace millrace
