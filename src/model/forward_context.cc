#include "model/forward_context.h"

#include "kernels/row_tasks.h"

namespace millrace::model {

void MultiplyRows(const MatMulJob& job, int64_t row_begin, int64_t row_end, const WorkerScratch& worker) {
  if (job.quantized.base != nullptr) {
    kernels::MatMulInt8(*job.a, row_begin, row_end, job.quantized, job.n_tokens, job.y, job.y_stride,
                        worker.matmul);
  } else if (job.rounded.base != nullptr) {
    kernels::MatMulRounded(*job.a, row_begin, row_end, job.rounded, job.n_tokens, job.y, job.y_stride,
                           worker.matmul);
  } else {
    kernels::MatMul(*job.a, row_begin, row_end, job.x, job.n_tokens, job.y, job.y_stride, worker.matmul);
  }
}

void ForwardContext::RunMatMuls(std::span<const MatMulJob> jobs) const {
  const auto range_of = [](const MatMulJob& job) {
    return kernels::RowRange{.begin = job.row_begin, .end = job.row_end, .n_tokens = job.n_tokens};
  };
  kernels::ForEachRowTask(pool, jobs, range_of,
                          [&](const MatMulJob& job, int64_t begin, int64_t end, int worker) {
                            MultiplyRows(job, begin, end, scratch.workers[static_cast<size_t>(worker)]);
                          });
}

MatMulJob ForwardContext::OfRounded(MatMulJob job, const float* base) {
  job.rounded = {.base = base, .stride = job.x.stride, .index = job.x.index};
  return job;
}

void ForwardContext::LeaveOut() const {
  if (!batch.leaves_out()) return;
  scratch.KeepRows(std::span(batch.kept_rows(), static_cast<size_t>(batch.n_kept())));
  batch.LeaveOut();
}

}  // namespace millrace::model
