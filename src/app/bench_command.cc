#include <CLI/CLI.hpp>

#include "app/commands.h"

namespace millrace::app {

void AddBenchCommand(CLI::App& root, Invocation& invocation) {
  CLI::App* command = root.add_subcommand(
      "bench", "Measure speed as a ratio to this machine's limits, or a server over HTTP");
  command->require_subcommand(1);
  AddBenchContextCommand(*command, invocation);
  AddBenchFairnessCommand(*command, invocation);
  AddBenchKernelsCommand(*command, invocation);
  AddBenchModelCommand(*command, invocation);
  AddBenchNumericsCommand(*command, invocation);
  AddBenchServeCommand(*command, invocation);
  AddBenchSoakCommand(*command, invocation);
  AddBenchTokenizerCommand(*command, invocation);
}

}  // namespace millrace::app
