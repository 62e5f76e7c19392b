#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "app/bench_flags.h"
#include "app/bench_report.h"
#include "app/commands.h"
#include "app/context_run.h"
#include "app/forward_flags.h"
#include "base/units.h"
#include "rig/machine_limits.h"

namespace millrace::app {
namespace {

struct BenchContextFlags {
  std::string checkpoint;
  ContextRunOptions options;
  BenchFlags common;
};

boost::json::object MemoryJson(const ContextMemory& memory) {
  return {{"planned_bytes", memory.planned_bytes},
          {"held_bytes", memory.held_bytes},
          {"grown_bytes", memory.grown_bytes}};
}

Status BenchContext(const BenchContextFlags& flags) {
  rig::Team team(ApplyBenchFlags(flags.common));
  const rig::MachineDescription machine = rig::DescribeMachine();
  const rig::MachineLimits limits = rig::LimitLoops().Measure(team);
  if (!flags.common.json) fmt::print("checkpoint  {}\n{}", flags.checkpoint, LimitsText(machine, limits));
  std::fflush(stdout);
  boost::json::array progress;
  const auto on_progress = [&](const ContextProgress& at) {
    progress.push_back({{"depth", at.depth}, {"tokens_per_s", at.tokens_per_s}});
    if (flags.common.json) return;
    fmt::print("read {:>9} tokens, the last at {:.1f} tokens/s\n", at.depth, at.tokens_per_s);
    std::fflush(stdout);
  };
  MILLRACE_ASSIGN_OR_RETURN(const ContextRun run,
                            RunContext(flags.checkpoint, team, flags.options, on_progress));
  if (flags.common.json) {
    boost::json::object object = BenchJson(machine, limits, run.rows);
    object["checkpoint"] = flags.checkpoint;
    object["prefill"] = progress;
    object["memory"] = MemoryJson(run.memory);
    fmt::print("{}\n", boost::json::serialize(object));
    return {};
  }
  fmt::print("{}", RowHeadText());
  for (const rig::BenchRow& row : run.rows) fmt::print("{}", RowText(row));
  fmt::print("memory: {} planned beside the mapped weights, {} held, the process grew by {}\n",
             HumanBytes(run.memory.planned_bytes), HumanBytes(run.memory.held_bytes),
             HumanBytes(run.memory.grown_bytes));
  return {};
}

}  // namespace

void AddBenchContextCommand(CLI::App& bench, Invocation& invocation) {
  auto flags = std::make_shared<BenchContextFlags>();
  CLI::App* command = bench.add_subcommand("context",
                                           "One prompt as long as the context, every token read: speed at "
                                           "its end over speed at its beginning, and "
                                           "memory beside the plan. Takes minutes");
  command->add_option("checkpoint", flags->checkpoint, "Checkpoint directory")->required();
  command->add_option("--prefill", flags->options.prefill_tokens, "Tokens of the prompt")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command->add_option("--decode", flags->options.decode_tokens, "Tokens to decode behind it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--batch", flags->options.chunk_tokens, "Prompt tokens of one pass")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16))
      ->capture_default_str();
  AddNumericsFlag(*command, flags->options.numerics);
  AddLateLayersFlag(*command, flags->options.late_layers);
  AddBenchFlags(*command, flags->common);
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportRun(BenchContext(*flags)); }; });
}

}  // namespace millrace::app
