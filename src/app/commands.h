#pragma once

#include <CLI/CLI.hpp>

#include <functional>

#include "base/result.h"

namespace millrace::app {

// What the parsed command line asks for: the chosen subcommand's work, which returns the exit status
// (0 done, 1 it failed and said why on stderr, 2 the command line was wrong).
struct Invocation {
  std::function<int()> run;
};

// 0, or 1 after printing "millrace: <message>" on stderr.
int ReportStatus(const Status& status);
// 2 after printing the same: what was asked for makes no sense, whatever the world is like.
int ReportUsage(const Error& error);
// The one or the other: 2 when the error is kInvalidArgument, in commands whose only input is the command
// line and what it names.
int ReportRun(const Status& status);

// Each adds one subcommand with its flags to `root`; when it is chosen, its callback sets `invocation.run`.
void AddBenchCommand(CLI::App& root, Invocation& invocation);
void AddChatCommand(CLI::App& root, Invocation& invocation);
void AddCompletionCommand(CLI::App& root, Invocation& invocation);
void AddEncodeChatCommand(CLI::App& root, Invocation& invocation);
void AddEvalCommand(CLI::App& root, Invocation& invocation);
void AddGenerateCommand(CLI::App& root, Invocation& invocation);
void AddInspectCommand(CLI::App& root, Invocation& invocation);
void AddMakeCheckpointCommand(CLI::App& root, Invocation& invocation);
void AddParseChatCommand(CLI::App& root, Invocation& invocation);
void AddPlanCommand(CLI::App& root, Invocation& invocation);
void AddServeCommand(CLI::App& root, Invocation& invocation);
void AddTokenizeCommand(CLI::App& root, Invocation& invocation);
// Subcommands of `bench`.
void AddBenchContextCommand(CLI::App& bench, Invocation& invocation);
void AddBenchFairnessCommand(CLI::App& bench, Invocation& invocation);
void AddBenchKernelsCommand(CLI::App& bench, Invocation& invocation);
void AddBenchModelCommand(CLI::App& bench, Invocation& invocation);
void AddBenchNumericsCommand(CLI::App& bench, Invocation& invocation);
void AddBenchServeCommand(CLI::App& bench, Invocation& invocation);
void AddBenchSoakCommand(CLI::App& bench, Invocation& invocation);
void AddBenchTokenizerCommand(CLI::App& bench, Invocation& invocation);

}  // namespace millrace::app
