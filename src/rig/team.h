#pragma once

#include <ctime>

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "kernels/matmul_int8.h"
#include "kernels/matmul_rounded.h"

namespace millrace::rig {

// The processor time that each thread of a team has had, in seconds.
using CpuTimes = std::vector<double>;

// One product of a matrix with some tokens: in `fast` numerics if there are codes, or rounded vectors that
// are those of x, else in `reference`.
struct Product {
  const kernels::WeightMatrix* a = nullptr;
  kernels::InputRows x = {};
  const kernels::QuantizedRows* codes = nullptr;
  const kernels::RoundedRows* rounded = nullptr;
  int64_t n_tokens = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
};

// A thread pool with what benchmarks want to know of its threads, and each thread's scratch. One thread uses
// it.
class Team {
 public:
  explicit Team(int n_threads);

  ThreadPool& pool() { return pool_; }
  int size() const { return pool_.size(); }
  // Runs once on every thread, so that none is asleep just afterwards.
  void Wake();
  CpuTimes CpuTimesNow() const;

  // All products as one loop over row tasks, as the forward pass shares them out.
  void Run(std::span<const Product> products);
  // Rows [begin, end) of one product, from inside a task.
  void RunRows(const Product& product, int64_t begin, int64_t end, int worker);

  // `n` floats of scratch of thread `worker`.
  std::span<float> Scratch(int worker, size_t n);

 private:
  ThreadPool pool_;
  std::vector<clockid_t> clocks_;
  std::vector<std::vector<float>> scratch_;
};

}  // namespace millrace::rig
