#pragma once

#include <cstdint>

#include "kernels/aligned_vector.h"
#include "kernels/matmul_rounded.h"
#include "rig/team.h"

namespace millrace::rig {

// Activations rounded to bfloat16, as `fast` numerics multiplies them with fp8 matrices.
class RoundedBatch {
 public:
  RoundedBatch(int64_t n_rows, int64_t cols)
      : n_rows_(n_rows), cols_(cols), rounded_(static_cast<size_t>(n_rows * cols)) {}

  // Rounds x [rows, cols], a task a row.
  void Round(const float* x, Team& team);
  kernels::RoundedRows Rows() const { return {.base = rounded_.data(), .stride = cols_}; }

 private:
  int64_t n_rows_;
  int64_t cols_;
  kernels::AlignedVector<float> rounded_;
};

}  // namespace millrace::rig
