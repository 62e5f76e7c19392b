#pragma once

#include "kernels/targets_int8_dot.h"
// After it: it chooses which instruction sets are compiled.
#include <hwy/targets.h>

#include <cstdint>
#include <vector>

// For tests and benchmarks only: pointing dispatch at one instruction set after another.
namespace millrace::kernels {

// The compiled sets that this machine has, best first; always ends with the portable fallback.
inline std::vector<int64_t> RunnableTargets() {
  std::vector<int64_t> targets;
  const int64_t runnable = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS;
  for (int64_t left = runnable; left != 0; left &= left - 1) targets.push_back(left & -left);
  return targets;
}

// While it lives, dispatch chooses this set, or the best below it in a kernel that is not compiled for it.
// One thread.
class ScopedTarget {
 public:
  explicit ScopedTarget(int64_t target) {
    int64_t up_to = target;
    for (const int64_t other : RunnableTargets()) {
      if (other > target) up_to |= other;  // better sets have lower bits
    }
    hwy::SetSupportedTargetsForTest(up_to);
    hwy::GetChosenTarget().Update(up_to);
  }
  ScopedTarget(const ScopedTarget&) = delete;
  ScopedTarget& operator=(const ScopedTarget&) = delete;
  ~ScopedTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace millrace::kernels
