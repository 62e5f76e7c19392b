#include "rig/quantized_batch.h"

namespace millrace::rig {

QuantizedBatch::QuantizedBatch(int64_t n_rows, int64_t cols)
    : n_rows_(n_rows), cols_(cols), groups_(static_cast<size_t>(n_rows * kernels::QuantizedGroups(cols))) {}

void QuantizedBatch::Quantize(const float* x, Team& team) {
  team.pool().ParallelFor(static_cast<size_t>(n_rows_), [&](size_t task, int) {
    const auto row = static_cast<int64_t>(task);
    kernels::QuantizeInt8(x + row * cols_, cols_, groups_.data() + row * kernels::QuantizedGroups(cols_));
  });
}

void QuantizedBatch::QuantizeBlock(const float* x, int64_t row, int64_t begin) {
  kernels::QuantizedGroup* groups = groups_.data() + row * kernels::QuantizedGroups(cols_);
  kernels::QuantizeInt8Block(x, groups[begin / 128], begin / 32 % 4);
}

kernels::QuantizedRows QuantizedBatch::Rows(int64_t first, const int32_t* index) const {
  return {.base = groups_.data() + first * kernels::QuantizedGroups(cols_), .cols = cols_, .index = index};
}

}  // namespace millrace::rig
