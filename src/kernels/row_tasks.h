#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/matmul.h"

namespace millrace::kernels {

// Which part of a product is wanted, and for how many tokens: what decides how it is cut.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
  int64_t n_tokens = 0;
};

// Runs several products as one loop over tasks of TaskRows rows: run(job, begin, end, worker) for every task,
// on the pool's threads. range_of(job) gives each job's RowRange; a job without tokens has no tasks. No job
// reads what another writes.
template <class Job, class RangeOf, class Run>
void ForEachRowTask(ThreadPool& pool, std::span<const Job> jobs, const RangeOf& range_of, const Run& run) {
  const auto task_rows = [&](const RowRange& range) {
    return TaskRows(range.end - range.begin, range.n_tokens, pool.size());
  };
  const auto tasks_of = [&](const Job& job) {
    const RowRange range = range_of(job);
    if (range.n_tokens == 0) return int64_t{0};
    return (range.end - range.begin + task_rows(range) - 1) / task_rows(range);
  };
  int64_t n_tasks = 0;
  for (const Job& job : jobs) n_tasks += tasks_of(job);
  pool.ParallelFor(static_cast<size_t>(n_tasks), [&](size_t task, int worker) {
    auto at = static_cast<int64_t>(task);
    const Job* job = jobs.data();
    for (int64_t n = tasks_of(*job); at >= n; n = tasks_of(*++job)) at -= n;
    const RowRange range = range_of(*job);
    const int64_t begin = range.begin + at * task_rows(range);
    run(*job, begin, std::min(begin + task_rows(range), range.end), worker);
  });
}

}  // namespace millrace::kernels
