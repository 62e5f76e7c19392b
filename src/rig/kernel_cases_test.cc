#include "rig/kernel_cases.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "kernels/peak_loops.h"
#include "rig/blas.h"

namespace millrace::rig {
namespace {

TEST(KernelCases, HaveNamesThatAFilterCanTellApart) {
  std::set<std::string_view> names;
  for (const KernelCase& kernel : KernelCases()) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    EXPECT_FALSE(kernel.what.empty());
  }
}

// The cheapest case from end to end.
TEST(KernelCases, AMatVecIsVerifiedTimedAndNamed) {
  Team team(2);
  LimitLoops limits;
  KernelBench bench{.team = team, .limits = limits};
  const Result<std::vector<BenchRow>> rows = ExpertDownMatVec(bench);
  ASSERT_TRUE(rows.ok()) << rows.error().message();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].numerics, "reference");
  EXPECT_EQ((*rows)[1].numerics, "fast");
  EXPECT_EQ((*rows)[1].instruction_set, kernels::Int8InstructionSet());
  for (const BenchRow& row : *rows) {
    EXPECT_GT(row.value, 0);
    EXPECT_GT(row.limit, 0);
    EXPECT_EQ(row.limit_name, "read bandwidth");
    EXPECT_EQ(row.threads, 2);
    EXPECT_GE(row.rounds, 5);
  }
}

TEST(KernelCases, OneThreadCannotGainOverItself) {
  Team team(1);
  LimitLoops limits;
  KernelBench bench{.team = team, .limits = limits};
  const Result<std::vector<BenchRow>> rows = AllThreadsOverOne(bench);
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_TRUE((*rows)[0].skipped.has_value());
}

TEST(Blas, MultipliesAsOursDoOrNamesItsPackage) {
  const Result<std::unique_ptr<Blas>> blas = Blas::Load(1, kernels::FloatInstructionSet());
  if (!blas.ok()) {
    EXPECT_EQ(blas.error().code(), ErrorCode::kNotFound);
    EXPECT_NE(blas.error().message().find("libopenblas0-pthread"), std::string::npos);
    GTEST_SKIP() << blas.error().message();
  }
  EXPECT_TRUE((*blas)->name().starts_with("OpenBLAS ")) << (*blas)->name();
  // [2, 3] times two tokens of 3.
  const float a[] = {1, 2, 3, 4, 5, 6};
  const float x[] = {1, 0, 2, 0, 1, -1};
  float y[4] = {};
  (*blas)->MatMul(a, 2, 3, x, 2, y);
  const float expected[] = {7, 16, -1, -1};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(y[i], expected[i]) << i;
}

TEST(MachineLimits, ArePositiveAndTheMachineIsNamed) {
  Team team(2);
  LimitLoops loops;
  const MachineLimits limits = loops.Measure(team);
  EXPECT_EQ(limits.threads, 2);
  EXPECT_GT(limits.read_bytes_s, 1e8);
  EXPECT_GT(limits.float_ops_s, 1e8);
  EXPECT_GT(limits.int8_ops_s, 1e8);
  const MachineDescription machine = DescribeMachine();
  EXPECT_FALSE(machine.processor.empty());
  EXPECT_GE(machine.processors, 1);
}

}  // namespace
}  // namespace millrace::rig
