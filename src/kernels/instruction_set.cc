#include "kernels/instruction_set.h"

#include "kernels/targets_int8_dot.h"
// After it: it chooses which instruction sets are compiled.
#include <hwy/targets.h>

#include <cstdint>

namespace millrace::kernels {
namespace {

// One bit a set, lower bits for better ones.
int64_t RunnableTargets() {
  return (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS;
}

}  // namespace

std::vector<std::string_view> InstructionSets() {
  std::vector<std::string_view> names;
  for (int64_t left = RunnableTargets(); left != 0; left &= left - 1)
    names.emplace_back(hwy::TargetName(left & -left));
  return names;
}

bool UseInstructionSet(std::string_view name) {
  for (int64_t left = RunnableTargets(); left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    if (hwy::TargetName(target) != name) continue;
    hwy::DisableTargets(target - 1);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return true;
  }
  return false;
}

}  // namespace millrace::kernels
