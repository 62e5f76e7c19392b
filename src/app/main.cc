#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include "app/commands.h"

int main(int argc, char** argv) {
  CLI::App root("millrace: an inference server for DeepSeek-V4.1-Flash", "millrace");
  root.require_subcommand(1);
  root.set_help_all_flag("--help-all", "Help of every subcommand");
  millrace::app::Invocation invocation;
  millrace::app::AddBenchCommand(root, invocation);
  millrace::app::AddChatCommand(root, invocation);
  millrace::app::AddEncodeChatCommand(root, invocation);
  millrace::app::AddEvalCommand(root, invocation);
  millrace::app::AddGenerateCommand(root, invocation);
  millrace::app::AddInspectCommand(root, invocation);
  millrace::app::AddMakeCheckpointCommand(root, invocation);
  millrace::app::AddParseChatCommand(root, invocation);
  millrace::app::AddServeCommand(root, invocation);
  millrace::app::AddTokenizeCommand(root, invocation);
  const std::vector<CLI::App*> commands = root.get_subcommands([](CLI::App*) { return true; });
  const auto is_named = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && std::ranges::none_of(commands, is_named)) {
    std::fprintf(stderr, "millrace: unknown command '%s'; millrace --help lists them\n", argv[1]);
    return 2;
  }
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = root.exit(error);
    return status == 0 ? 0 : 2;
  }
  // What a library throws (memory, threads, the file system) ends like any other failure.
  try {
    return invocation.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "millrace: %s\n", error.what());
    return 1;
  }
}
