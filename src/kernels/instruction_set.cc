#include "kernels/instruction_set.h"

#include "kernels/targets_int8_dot.h"
// After it: it chooses which instruction sets are compiled.
#include <hwy/targets.h>

#include <cstdint>

#include "kernels/matmul_rounded.h"

namespace millrace::kernels {
namespace {

// One bit a set, lower bits for better ones.
int64_t RunnableTargets() {
  return (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS;
}

}  // namespace

std::vector<std::string_view> InstructionSets() {
  std::vector<std::string_view> names;
  if (UsesBf16Pairs()) names.push_back(kBf16InstructionSet);
  for (int64_t left = RunnableTargets(); left != 0; left &= left - 1)
    names.emplace_back(hwy::TargetName(left & -left));
  return names;
}

bool UseInstructionSet(std::string_view name) {
  // Better than every set of Highway's, and the best of those with it.
  if (name == kBf16InstructionSet) return UsesBf16Pairs();
  for (int64_t left = RunnableTargets(); left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    if (hwy::TargetName(target) != name) continue;
    AllowBf16Pairs(false);
    hwy::DisableTargets(target - 1);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return true;
  }
  return false;
}

}  // namespace millrace::kernels
