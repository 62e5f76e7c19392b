#pragma once

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/aligned_vector.h"

// For benchmarks only: a kernel and the limit it is held against, timed in turns, because the machine's speed
// changes within seconds.
namespace millrace::kernels {

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
