#include <CLI/CLI.hpp>

#include "app/commands.h"

int main(int argc, char** argv) {
  CLI::App root("millrace: an inference server for DeepSeek-V4.1-Flash", "millrace");
  root.require_subcommand(1);
  root.set_help_all_flag("--help-all", "Help of every subcommand");
  millrace::app::Invocation invocation;
  millrace::app::AddChatCommand(root, invocation);
  millrace::app::AddEvalCommand(root, invocation);
  millrace::app::AddGenerateCommand(root, invocation);
  millrace::app::AddInspectCommand(root, invocation);
  millrace::app::AddMakeCheckpointCommand(root, invocation);
  millrace::app::AddServeCommand(root, invocation);
  millrace::app::AddTokenizeCommand(root, invocation);
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = root.exit(error);
    return status == 0 ? 0 : 2;
  }
  return invocation.run();
}
