#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/safetensors.h"

namespace millrace::real_layer {

// Throws std::runtime_error (which fails the running test) when `condition` does not hold.
void Require(bool condition, const std::string& what);

// A stored matrix [rows, cols], decoded one row at a time (shared/spec/v41-text.md, section 3.2).
class Matrix64 {
 public:
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  // out[0 .. cols) = the row's values, exactly.
  void DecodeRow(int64_t row, double* out) const;

 private:
  friend class StoredWeights;

  formats::DType dtype_{};
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  const std::byte* data_ = nullptr;
  const std::byte* scales_ = nullptr;
  int64_t scale_rows_ = 1;  // rows that share a scale
};

// All shards of a checkpoint directory, looked up by the released names. Knows no catalogue: what is asked
// for must be there. Any thread may read.
class StoredWeights {
 public:
  explicit StoredWeights(const std::filesystem::path& dir);

  // `name` with or without its ".weight"; a ".scale" beside it is applied. `scale_rows`: 32 for the tiles of
  // dense matrices, 1 for engram tables; fp4 has a scale row for every row in any case.
  Matrix64 Matrix(const std::string& name, int64_t scale_rows = 32) const;
  // All elements of a BF16 or F32 tensor.
  std::vector<double> Values(const std::string& name) const;

 private:
  struct Found {
    const formats::TensorInfo* info = nullptr;
    const std::byte* data = nullptr;
  };
  Found Find(const std::string& name) const;

  std::vector<formats::SafetensorsFile> shards_;
};

}  // namespace millrace::real_layer
