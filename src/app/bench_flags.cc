#include "app/bench_flags.h"

#include <vector>

#include "engine/load.h"
#include "kernels/instruction_set.h"

namespace millrace::app {

void AddBenchFlags(CLI::App& command, BenchFlags& flags) {
  command.add_flag("--json", flags.json, "One JSON object: machine, limits, rows");
  command.add_option("--threads", flags.threads, "Threads, 0 for one a processor")
      ->check(CLI::Range(0, 1024));
  std::vector<std::string> names;
  for (const std::string_view name : kernels::InstructionSets()) names.emplace_back(name);
  command
      .add_option("--instruction-set", flags.instruction_set,
                  "Run kernels and limits on this set instead of the best of the machine")
      ->check(CLI::IsMember(names));
}

int ApplyBenchFlags(const BenchFlags& flags) {
  if (!flags.instruction_set.empty()) kernels::UseInstructionSet(flags.instruction_set);
  return flags.threads == 0 ? engine::UsableProcessors() : flags.threads;
}

}  // namespace millrace::app
