#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rig/bench_row.h"
#include "rig/machine_limits.h"
#include "rig/team.h"

namespace millrace::rig {

// What the cases are measured with.
struct KernelBench {
  Team& team;
  LimitLoops& limits;
};

// One kernel at the shapes of the released model. `run` computes, compares with the plain reference, and only
// then measures; kMismatch names what differs.
struct KernelCase {
  std::string_view name;
  std::string_view what;  // one line
  Result<std::vector<BenchRow>> (*run)(KernelBench& bench);
};

std::span<const KernelCase> KernelCases();

// The cases, one function each; see the table in kernel_cases.cc.
Result<std::vector<BenchRow>> ExpertUpMatVec(KernelBench& bench);
Result<std::vector<BenchRow>> ExpertDownMatVec(KernelBench& bench);
Result<std::vector<BenchRow>> SquareFp8MatVec(KernelBench& bench);
Result<std::vector<BenchRow>> QueryFp8MatVec(KernelBench& bench);
Result<std::vector<BenchRow>> HeadMatVec(KernelBench& bench);
Result<std::vector<BenchRow>> SharedExpertReads(KernelBench& bench);
Result<std::vector<BenchRow>> SharedFp8Reads(KernelBench& bench);
Result<std::vector<BenchRow>> ExpertsInPrefill(KernelBench& bench);
Result<std::vector<BenchRow>> Fp8AgainstSgemm(KernelBench& bench);
Result<std::vector<BenchRow>> AllThreadsOverOne(KernelBench& bench);
Result<std::vector<BenchRow>> IndexScoring(KernelBench& bench);
Result<std::vector<BenchRow>> DecodeAttention(KernelBench& bench);

}  // namespace millrace::rig
