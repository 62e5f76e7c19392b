#include "rig/rounded_batch.h"

namespace millrace::rig {

void RoundedBatch::Round(const float* x, Team& team) {
  team.pool().ParallelFor(static_cast<size_t>(n_rows_), [&](size_t task, int) {
    const auto row = static_cast<int64_t>(task);
    kernels::RoundInputs(x + row * cols_, 0, cols_, rounded_.data() + row * cols_);
  });
}

}  // namespace millrace::rig
