#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace::rig {

// OpenBLAS, if this machine has it: the float32 matrix product that everybody knows, to compare with.
class Blas {
 public:
  // kNotFound, naming the library and the package that has it. Ours run on `instruction_set`: the library is
  // kept to AVX2 with them. Only the first load of a process chooses.
  static Result<std::unique_ptr<Blas>> Load(int n_threads, std::string_view instruction_set);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // y[t, o] = a[o] . x[t] for a [rows, cols], x [n_tokens, cols], y [n_tokens, rows], row-major.
  void MatMul(const float* a, int64_t rows, int64_t cols, const float* x, int64_t n_tokens, float* y) const;
  // "OpenBLAS 0.3.21 ... SkylakeX"
  const std::string& name() const { return name_; }

 private:
  using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);

  Blas() = default;

  void* library_ = nullptr;
  Sgemm sgemm_ = nullptr;
  std::string name_;
};

}  // namespace millrace::rig
