#include "model/forward_context.h"

#include <algorithm>

namespace millrace::model {
namespace {

int64_t TaskRowsOf(const MatMulJob& job, int n_threads) {
  return kernels::TaskRows(job.row_end - job.row_begin, job.n_tokens, n_threads);
}

int64_t TasksOf(const MatMulJob& job, int n_threads) {
  if (job.n_tokens == 0) return 0;  // a batch that completes no compressed entry
  const int64_t task_rows = TaskRowsOf(job, n_threads);
  return (job.row_end - job.row_begin + task_rows - 1) / task_rows;
}

}  // namespace

void MultiplyRows(const MatMulJob& job, int64_t row_begin, int64_t row_end, const WorkerScratch& worker) {
  if (job.quantized.base != nullptr) {
    kernels::MatMulInt8(*job.a, row_begin, row_end, job.quantized, job.n_tokens, job.y, job.y_stride,
                        worker.matmul);
  } else {
    kernels::MatMul(*job.a, row_begin, row_end, job.x, job.n_tokens, job.y, job.y_stride, worker.matmul);
  }
}

void ForwardContext::RunMatMuls(std::span<const MatMulJob> jobs) const {
  const int n_threads = pool.size();
  int64_t n_tasks = 0;
  for (const MatMulJob& job : jobs) n_tasks += TasksOf(job, n_threads);
  pool.ParallelFor(static_cast<size_t>(n_tasks), [&](size_t task, int worker) {
    auto at = static_cast<int64_t>(task);
    const MatMulJob* job = jobs.data();
    for (; at >= TasksOf(*job, n_threads); ++job) at -= TasksOf(*job, n_threads);
    const int64_t task_rows = TaskRowsOf(*job, n_threads);
    const int64_t begin = job->row_begin + at * task_rows;
    MultiplyRows(*job, begin, std::min(begin + task_rows, job->row_end),
                 scratch.workers[static_cast<size_t>(worker)]);
  });
}

void ForwardContext::LeaveOut() const {
  if (!batch.leaves_out()) return;
  scratch.KeepRows(std::span(batch.kept_rows(), static_cast<size_t>(batch.n_kept())));
  batch.LeaveOut();
}

}  // namespace millrace::model
