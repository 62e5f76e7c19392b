#pragma once

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

// For benchmarks only: a kernel and the limit it is held against, timed in turns, because the machine's speed
// changes within seconds.
namespace millrace::kernels {

// A vector aligned to cache lines, as the model's arrays are.
template <typename T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <typename U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* at, size_t) { ::operator delete(at, std::align_val_t(64)); }
  bool operator==(const LineAllocator&) const { return true; }
};
template <typename T>
using AlignedVector = std::vector<T, LineAllocator<T>>;

// Seconds of this thread's CPU time, so that neighbours on a shared machine count less.
template <typename Work>
double SecondsOf(const Work& work) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

}  // namespace millrace::kernels
