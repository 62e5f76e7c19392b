#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/flag_names.h"
#include "app/version.h"

namespace {

// The subcommand that the command line names last: whose flags they are.
const CLI::App& InnermostCommand(const CLI::App& root) {
  const CLI::App* command = &root;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  return *command;
}

// Status 2 after saying what of the command line is not understood.
int ReportExtras(const CLI::App& root) {
  const std::vector<std::string> extras = root.remaining(/*recurse=*/true);
  for (const std::string& extra : extras) {
    if (!extra.starts_with('-')) continue;
    const std::string message = millrace::app::UnknownFlagMessage(InnermostCommand(root), extra);
    std::fprintf(stderr, "millrace: %s\n", message.c_str());
    return 2;
  }
  std::fprintf(stderr, "millrace: unexpected argument '%s'\n", extras.empty() ? "" : extras.front().c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App root("millrace: an inference server for DeepSeek-V4.1-Flash", "millrace");
  root.require_subcommand(1);
  root.set_help_all_flag("--help-all", "Help of every subcommand");
  root.set_version_flag("--version", millrace::app::VersionText, "Version, commit and instruction sets");
  millrace::app::Invocation invocation;
  millrace::app::AddBenchCommand(root, invocation);
  millrace::app::AddChatCommand(root, invocation);
  millrace::app::AddCompletionCommand(root, invocation);
  millrace::app::AddEncodeChatCommand(root, invocation);
  millrace::app::AddEvalCommand(root, invocation);
  millrace::app::AddGenerateCommand(root, invocation);
  millrace::app::AddInspectCommand(root, invocation);
  millrace::app::AddMakeCheckpointCommand(root, invocation);
  millrace::app::AddParseChatCommand(root, invocation);
  millrace::app::AddPlanCommand(root, invocation);
  millrace::app::AddServeCommand(root, invocation);
  millrace::app::AddTokenizeCommand(root, invocation);
  const std::vector<CLI::App*> commands = root.get_subcommands([](CLI::App*) { return true; });
  const auto is_named = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && std::ranges::none_of(commands, is_named)) {
    std::vector<std::string> names;
    for (const CLI::App* command : commands) names.push_back(command->get_name());
    const std::string nearest = millrace::app::NearestName(argv[1], names);
    std::fprintf(stderr, "millrace: unknown command '%s'%s millrace --help lists them\n", argv[1],
                 nearest.empty() ? ";" : (": did you mean " + nearest + "?").c_str());
    return 2;
  }
  std::vector<std::string> args(argv + 1, argv + argc);
  millrace::app::NormalizeFlags(args);
  const std::vector<std::string> typed = args;
  std::ranges::reverse(args);  // as the parser takes them
  try {
    root.parse(args);
  } catch (const CLI::ExtrasError&) {
    return ReportExtras(root);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return root.exit(error);  // help and version
    const std::string message = millrace::app::InTypedWords(InnermostCommand(root), typed, error.what());
    std::fprintf(stderr, "millrace: %s\n'%s --help' tells more\n", message.c_str(),
                 millrace::app::CommandPath(InnermostCommand(root)).c_str());
    return 2;
  }
  // What a library throws (memory, threads, the file system) ends like any other failure.
  try {
    return invocation.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "millrace: %s\n", error.what());
    return 1;
  }
}
