#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/aligned_vector.h"
#include "kernels/matmul.h"
#include "rig/huge_buffer.h"
#include "rig/team.h"

namespace millrace::rig {

// "fp4", "fp8", "bf16", "f32".
std::string_view FormatName(kernels::WeightFormat format);

// Bytes of a matrix's codes and scales.
int64_t StoredBytes(const kernels::WeightMatrix& a);

// Matrices of one shape in the checkpoint's layout, with different random weights, taken in turn: when
// together they are far larger than the caches, each comes from memory. Weights are normally distributed as
// the format's rounding leaves them.
class MatrixCopies {
 public:
  // `count` matrices, filled by the team.
  MatrixCopies(kernels::WeightFormat format, int64_t rows, int64_t cols, int64_t count, Team& team);

  const kernels::WeightMatrix& operator[](int64_t i) const { return views_[static_cast<size_t>(i)]; }
  int64_t count() const { return static_cast<int64_t>(views_.size()); }
  // The next in turn.
  const kernels::WeightMatrix& Next();

 private:
  HugeBuffer memory_;
  std::vector<kernels::WeightMatrix> views_;
  int64_t next_ = 0;
};

// So many of these matrices that nothing of one is left in the caches when its turn comes again.
int64_t CopiesBeyondCaches(kernels::WeightFormat format, int64_t rows, int64_t cols);

// Normally distributed activations, the same for the same seed.
kernels::AlignedVector<float> RandomActivations(int64_t n, uint64_t seed);

}  // namespace millrace::rig
