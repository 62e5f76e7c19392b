#include "rig/team.h"

#include <pthread.h>

#include <atomic>
#include <thread>

#include "kernels/row_tasks.h"

namespace millrace::rig {

Team::Team(int n_threads)
    : pool_(n_threads), clocks_(static_cast<size_t>(n_threads)), scratch_(static_cast<size_t>(n_threads)) {
  // No thread takes a second task before each has taken one.
  std::atomic<int> arrived{0};
  pool_.ParallelFor(static_cast<size_t>(n_threads), [&](size_t, int worker) {
    pthread_getcpuclockid(pthread_self(), &clocks_[static_cast<size_t>(worker)]);
    ++arrived;
    while (arrived.load() < n_threads) std::this_thread::yield();
  });
}

void Team::Wake() {
  std::atomic<int> arrived{0};
  pool_.ParallelFor(static_cast<size_t>(size()), [&](size_t, int) {
    ++arrived;
    while (arrived.load() < size()) std::this_thread::yield();
  });
}

CpuTimes Team::CpuTimesNow() const {
  CpuTimes seconds;
  for (const clockid_t clock : clocks_) {
    timespec time{};
    clock_gettime(clock, &time);
    seconds.push_back(static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec));
  }
  return seconds;
}

std::span<float> Team::Scratch(int worker, size_t n) {
  std::vector<float>& scratch = scratch_[static_cast<size_t>(worker)];
  if (scratch.size() < n) scratch.resize(n);
  return std::span(scratch).first(n);
}

void Team::RunRows(const Product& product, int64_t begin, int64_t end, int worker) {
  if (product.codes != nullptr) {
    kernels::MatMulInt8(*product.a, begin, end, *product.codes, product.n_tokens, product.y, product.y_stride,
                        Scratch(worker, kernels::kMatMulInt8ScratchFloats));
  } else if (product.rounded != nullptr) {
    kernels::MatMulRounded(*product.a, begin, end, *product.rounded, product.n_tokens, product.y,
                           product.y_stride, Scratch(worker, kernels::MatMulScratchFloats(product.a->cols)));
  } else {
    kernels::MatMul(*product.a, begin, end, product.x, product.n_tokens, product.y, product.y_stride,
                    Scratch(worker, kernels::MatMulScratchFloats(product.a->cols)));
  }
}

void Team::Run(std::span<const Product> products) {
  const auto range_of = [](const Product& product) {
    return kernels::RowRange{.end = product.a->rows, .n_tokens = product.n_tokens};
  };
  kernels::ForEachRowTask(pool_, products, range_of,
                          [&](const Product& product, int64_t begin, int64_t end, int worker) {
                            RunRows(product, begin, end, worker);
                          });
}

}  // namespace millrace::rig
