#pragma once

#include <cstdint>
#include <vector>

#include "kernels/matmul_int8.h"
#include "rig/team.h"

namespace millrace::rig {

// Activations rounded to 8 bits, as `fast` numerics multiplies them.
class QuantizedBatch {
 public:
  QuantizedBatch(int64_t n_rows, int64_t cols);

  // Rounds x [rows, cols], a task a row.
  void Quantize(const float* x, Team& team);
  // Rounds channels [begin, begin + 32) of one row, x[32]; begin is a multiple of 32.
  void QuantizeBlock(const float* x, int64_t row, int64_t begin);
  // The rows from `first` on, or those of `index`.
  kernels::QuantizedRows Rows(int64_t first, const int32_t* index = nullptr) const;

 private:
  int64_t n_rows_;
  int64_t cols_;
  std::vector<kernels::QuantizedGroup> groups_;
};

}  // namespace millrace::rig
