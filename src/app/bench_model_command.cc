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
#include "app/forward_flags.h"
#include "base/function_ref.h"
#include "rig/model_bench.h"

namespace millrace::app {
namespace {

struct BenchModelFlags {
  std::string checkpoint;
  rig::ModelBenchOptions options;
  BenchFlags common;
  bool load = false;
};

Status Measure(const BenchModelFlags& flags, rig::KernelBench& bench,
               FunctionRef<void(const rig::BenchRow&)> on_row) {
  if (flags.load) {  // first: later the weights are mapped and stay in memory
    MILLRACE_ASSIGN_OR_RETURN(const rig::BenchRow row, rig::BenchLoad(flags.checkpoint, bench));
    on_row(row);
  }
  MILLRACE_ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, model::Checkpoint::Open(flags.checkpoint));
  return rig::BenchModel(checkpoint, bench, flags.options, on_row);
}

Status BenchModel(const BenchModelFlags& flags) {
  rig::Team team(ApplyBenchFlags(flags.common));
  rig::LimitLoops loops;
  rig::KernelBench bench{.team = team, .limits = loops};
  const rig::MachineDescription machine = rig::DescribeMachine();
  const rig::MachineLimits limits = loops.Measure(team);
  if (!flags.common.json)
    fmt::print("checkpoint  {}\n{}{}", flags.checkpoint, LimitsText(machine, limits), RowHeadText());
  std::fflush(stdout);
  std::vector<rig::BenchRow> rows;
  MILLRACE_RETURN_IF_ERROR(Measure(flags, bench, [&](const rig::BenchRow& row) {
    if (!flags.common.json) fmt::print("{}", RowText(row));
    std::fflush(stdout);
    rows.push_back(row);
  }));
  if (!flags.common.json) return {};
  boost::json::object object = BenchJson(machine, limits, rows);
  object["checkpoint"] = flags.checkpoint;
  fmt::print("{}\n", boost::json::serialize(object));
  return {};
}

}  // namespace

void AddBenchModelCommand(CLI::App& bench, Invocation& invocation) {
  auto flags = std::make_shared<BenchModelFlags>();
  flags->options.forward.max_batch_items = 1;
  CLI::App* command = bench.add_subcommand(
      "model",
      "The whole forward pass of a checkpoint: prefill over the multiply-add peak, decode over the "
      "read bandwidth");
  command->add_option("checkpoint", flags->checkpoint, "Checkpoint directory")->required();
  const CLI::Range tokens(int64_t{1}, int64_t{1} << 24);
  command->add_option("--prefill", flags->options.prefill_tokens, "Tokens of the prompt")
      ->check(tokens)
      ->capture_default_str();
  command->add_option("--decode", flags->options.decode_tokens, "Tokens to decode under the clock")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command
      ->add_option("--depth", flags->options.depth,
                   "Tokens in the sequence while decoding; rounded up to whole pages, compared with 512")
      ->check(tokens)
      ->capture_default_str();
  command->add_option("--batch", flags->options.forward.max_batch_tokens, "Most prompt tokens of one pass")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16))
      ->capture_default_str();
  command
      ->add_option("--busy", flags->options.busy_neighbours,
                   "Also measure beside this many processes that spin, started and ended by the benchmark")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  AddNumericsFlag(*command, flags->options.forward.numerics);
  AddLateLayersFlag(*command, flags->options.forward.late_layers);
  command->add_flag("--load", flags->load,
                    "Also time loading from disk; makes the kernel forget the checkpoint's files first");
  AddBenchFlags(*command, flags->common);
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportRun(BenchModel(*flags)); }; });
}

}  // namespace millrace::app
