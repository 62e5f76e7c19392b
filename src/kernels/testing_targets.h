#pragma once

#include "kernels/scoped_target.h"
// After it: it chooses which instruction sets are compiled.
#include <gtest/gtest.h>

// For tests only: runs a check on every instruction set that the kernels have and this machine can execute.
namespace millrace::kernels {

// Calls check() once per set, with the set's name in the trace of a failure.
template <typename Check>
void ForEachTarget(const Check& check) {
  for (const int64_t target : RunnableTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const ScopedTarget scope(target);
    check();
  }
}

}  // namespace millrace::kernels
