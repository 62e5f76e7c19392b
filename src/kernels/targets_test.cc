#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/targets_test.cc"
#include "kernels/targets_int8_dot.h"
// After it: it chooses the instruction sets that foreach_target walks.
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

int64_t ThisTarget() {
  return HWY_TARGET;
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/testing_targets.h"

namespace millrace::kernels {
HWY_EXPORT(ThisTarget);

namespace {

int64_t DispatchedTarget() {
  return HWY_DYNAMIC_DISPATCH(ThisTarget)();
}

// Every other test here rests on this: a set that is asked for is the set that runs.
TEST(Targets, DispatchGoesWhereTheTestPointsIt) {
  const int64_t best = DispatchedTarget();
  size_t n = 0;
  for (const int64_t target : RunnableTargets()) {
    const ScopedTarget scope(target);
    EXPECT_EQ(DispatchedTarget(), target) << hwy::TargetName(target);
    ++n;
  }
  EXPECT_EQ(n, RunnableTargets().size());
  EXPECT_EQ(RunnableTargets().back(), HWY_STATIC_TARGET) << "the portable fallback is always runnable";
  EXPECT_EQ(DispatchedTarget(), best) << "the scope puts back what it found";
}

}  // namespace
}  // namespace millrace::kernels
#endif
