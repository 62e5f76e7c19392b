#include "kernels/instruction_set.h"

#include <gtest/gtest.h>

#include "kernels/matmul_rounded.h"
#include "kernels/peak_loops.h"
#include "kernels/testing_targets.h"

namespace millrace::kernels {
namespace {

// Undoes UseInstructionSet, for the tests that follow in this process.
class AllSetsAgain {
 public:
  ~AllSetsAgain() {
    AllowBf16Pairs(true);
    hwy::DisableTargets(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

TEST(InstructionSets, AreTheRunnableTargetsBestFirst) {
  std::vector<std::string_view> names = InstructionSets();
  const std::vector<int64_t> targets = RunnableTargets();
  if (HasBf16Pairs()) {
    ASSERT_EQ(names.front(), kBf16InstructionSet);
    names.erase(names.begin());
  }
  ASSERT_EQ(names.size(), targets.size());
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(names[i], hwy::TargetName(targets[i]));
}

TEST(UseInstructionSet, ChangesWhatDispatchChooses) {
  for (const std::string_view name : InstructionSets()) {
    const AllSetsAgain afterwards;
    ASSERT_TRUE(UseInstructionSet(name)) << name;
    EXPECT_EQ(Bf16InstructionSet(), name);
    EXPECT_EQ(Int8InstructionSet(), name == kBf16InstructionSet ? "AVX3_DL" : name);
    EXPECT_EQ(InstructionSets().front(), name) << "better ones are gone";
  }
}

TEST(UseInstructionSet, RefusesWhatTheMachineDoesNotHave) {
  const std::string best = Int8InstructionSet();
  EXPECT_FALSE(UseInstructionSet("AVX9"));
  EXPECT_FALSE(UseInstructionSet(""));
  EXPECT_EQ(Int8InstructionSet(), best);
}

}  // namespace
}  // namespace millrace::kernels
