#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <string>

#include "app/commands.h"
#include "app/inspect_report.h"
#include "formats/hf_config.h"
#include "model/catalogue.h"
#include "model/checkpoint.h"

namespace millrace::app {
namespace {

struct InspectFlags {
  std::string checkpoint;
  std::string config;
  bool all_scales = false;
  bool json = false;
};

int Print(const InspectSubject& subject, bool as_json) {
  const std::string text = as_json ? InspectJson(subject) : InspectText(subject);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0
             ? 0
             : ReportStatus(Error(ErrorCode::kIo, "cannot write the report to standard output"));
}

int InspectConfig(const InspectFlags& flags) {
  const auto config = formats::ReadHfConfig(flags.config);
  if (!config.ok()) return ReportStatus(config.error());
  const auto catalogue = model::BuildCatalogue(*config);
  return Print({flags.config, model::CountCatalogue(catalogue), nullptr}, flags.json);
}

int InspectCheckpoint(const InspectFlags& flags) {
  const auto report = model::Checkpoint::Inspect(
      flags.checkpoint, flags.all_scales ? model::ScaleScan::kAll : model::ScaleScan::kExceptTables);
  if (!report.ok()) return ReportStatus(report.error());
  const int status = Print({flags.checkpoint, report->found, &*report}, flags.json);
  return report->disagreements.empty() ? status : 1;
}

}  // namespace

void AddInspectCommand(CLI::App& root, Invocation& invocation) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command =
      root.add_subcommand("inspect", "List what a checkpoint holds and everything that is wrong with it");
  command->footer(
      "Exit status: 0 nothing disagrees, 1 something does (or nothing could be read), 2 wrong usage.");
  CLI::App* what = command->add_option_group("what");
  what->add_option("checkpoint", flags->checkpoint, "A checkpoint directory: config.json, index and shards");
  what->add_option("--config", flags->config,
                   "Only this config.json (or the directory that holds it): what its checkpoint must hold");
  what->require_option(1);
  command->add_flag("--all-scales", flags->all_scales,
                    "Look for NaN in the engram tables' scales too (6 GB of the released checkpoint)");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, &invocation] {
    invocation.run = [flags] {
      return flags->config.empty() ? InspectCheckpoint(*flags) : InspectConfig(*flags);
    };
  });
}

}  // namespace millrace::app
