#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <boost/json.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "app/bench_flags.h"
#include "app/bench_report.h"
#include "app/commands.h"
#include "rig/kernel_cases.h"
#include "rig/machine_limits.h"

namespace millrace::app {
namespace {

struct BenchKernelsFlags {
  std::string filter;
  BenchFlags common;
};

std::string CaseList() {
  std::string list = "Cases:\n";
  for (const rig::KernelCase& kernel : rig::KernelCases())
    list += fmt::format("  {:<16} {}\n", kernel.name, kernel.what);
  return list;
}

Status BenchKernels(const BenchKernelsFlags& flags) {
  std::vector<rig::KernelCase> cases;
  for (const rig::KernelCase& kernel : rig::KernelCases()) {
    if (kernel.name.find(flags.filter) != std::string_view::npos) cases.push_back(kernel);
  }
  if (cases.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--filter '{}' is in no case's name. {}", flags.filter, CaseList()));
  }
  rig::Team team(ApplyBenchFlags(flags.common));
  rig::LimitLoops loops;
  rig::KernelBench bench{.team = team, .limits = loops};
  const rig::MachineDescription machine = rig::DescribeMachine();
  const rig::MachineLimits limits = loops.Measure(team);
  if (!flags.common.json) fmt::print("{}{}", LimitsText(machine, limits), RowHeadText());
  std::fflush(stdout);
  std::vector<rig::BenchRow> all;
  for (const rig::KernelCase& kernel : cases) {
    Result<std::vector<rig::BenchRow>> rows = kernel.run(bench);
    if (!rows.ok()) return rows.error().In(std::string(kernel.name));
    for (rig::BenchRow& row : *rows) {
      if (!flags.common.json) fmt::print("{}", RowText(row));
      all.push_back(std::move(row));
    }
    std::fflush(stdout);
  }
  if (flags.common.json) fmt::print("{}\n", boost::json::serialize(BenchJson(machine, limits, all)));
  return {};
}

}  // namespace

void AddBenchKernelsCommand(CLI::App& bench, Invocation& invocation) {
  auto flags = std::make_shared<BenchKernelsFlags>();
  CLI::App* command = bench.add_subcommand(
      "kernels", "Every kernel at the released model's shapes; verified, then timed in turn with its limit");
  command->footer(CaseList());
  AddBenchFlags(*command, flags->common);
  command->add_option("--filter", flags->filter, "Only the cases whose name contains this");
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportRun(BenchKernels(*flags)); }; });
}

}  // namespace millrace::app
