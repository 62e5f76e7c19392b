#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/byte_size.h"
#include "app/commands.h"
#include "app/plan_report.h"
#include "app/serve_flags.h"
#include "app/serving_plan.h"
#include "formats/hf_config.h"
#include "model/checkpoint.h"
#include "model/layer_plan.h"
#include "model/sequence_state.h"
#include "rig/card_rig.h"

namespace millrace::app {
namespace {

struct PlanFlags {
  std::string checkpoint;
  std::string config;
  ServeFlags serve;
  bool json = false;

  // A rig of cards.
  std::vector<std::string> devices;
  std::string device_reserve = "1GiB";
  std::optional<int> tp, ep;
  std::string engram = "host";
  std::string dspark = "auto";
  bool language_model_only = false;
};

int Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0
             ? 0
             : ReportStatus(Error(ErrorCode::kIo, "cannot write the plan to standard output"));
}

Result<ServingOptions> ToServingOptions(const ServeFlags& flags) {
  ServingOptions options;
  MILLRACE_ASSIGN_OR_RETURN(options.load, ToLoadOptions(flags));
  options.engine = ToEngineOptions(flags);
  MILLRACE_ASSIGN_OR_RETURN(options.http, ToHttpOptions(flags));
  MILLRACE_ASSIGN_OR_RETURN(options.service, ToServiceOptions(flags, {}));
  return options;
}

Result<formats::ModelConfig> ReadConfig(const PlanFlags& flags) {
  return flags.config.empty() ? model::Checkpoint::ReadConfig(flags.checkpoint)
                              : formats::ReadHfConfig(flags.config);
}

// What the engine holds on each card beside weights and pages.
Result<rig::CardRigOptions> ToCardRigOptions(const PlanFlags& flags, const formats::ModelConfig& config,
                                             const ServingOptions& serving) {
  rig::CardRigOptions options;
  for (const std::string& device : flags.devices) {
    MILLRACE_ASSIGN_OR_RETURN(const uint64_t bytes, ParseByteSize(device, Gigabyte::kBinary));
    options.device_bytes.push_back(bytes);
  }
  MILLRACE_ASSIGN_OR_RETURN(options.reserve_bytes, ParseByteSize(flags.device_reserve, Gigabyte::kBinary));
  options.tp = flags.tp;
  options.ep = flags.ep;
  options.engram = flags.engram == "device" ? rig::EngramPlacement::kDevice : rig::EngramPlacement::kHost;
  options.draft = flags.dspark == "auto";
  options.vision = !flags.language_model_only;
  MILLRACE_ASSIGN_OR_RETURN(const model::LayerPlan layers, model::LayerPlan::Build(config));
  engine::StepperOptions stepper = serving.load.stepper;
  options.session_tokens = stepper.max_model_len.value_or(config.max_position_embeddings);
  stepper.max_model_len = options.session_tokens;
  MILLRACE_ASSIGN_OR_RETURN(std::vector<PlannedMemory> lines,
                            engine::ModelStepper::PlanMemory(layers, stepper, /*n_threads=*/1));
  std::erase_if(lines, [](const PlannedMemory& line) { return line.name == "kv pages"; });
  options.per_card = std::move(lines);
  options.page_bytes = model::PageLayout(layers).page_bytes;
  options.page_tokens = model::kPageTokens;
  return options;
}

Result<int> PlanCards(const PlanFlags& flags, const formats::ModelConfig& config,
                      const ServingOptions& serving) {
  MILLRACE_ASSIGN_OR_RETURN(const rig::CardRigOptions options, ToCardRigOptions(flags, config, serving));
  MILLRACE_ASSIGN_OR_RETURN(const rig::CardRigPlan plan, rig::PlanCardRig(config, options));
  const int status = Print(flags.json ? CardRigJson(plan, options.session_tokens)
                                      : CardRigText(plan, options.session_tokens));
  return plan.sessions > 0 ? status : 1;
}

Result<int> PlanHost(const PlanFlags& flags, const formats::ModelConfig& config,
                     const ServingOptions& serving) {
  MILLRACE_ASSIGN_OR_RETURN(const rig::MemoryBudget budget, ToBudget(flags.serve));
  MILLRACE_ASSIGN_OR_RETURN(const ServingPlan plan,
                            PlanServing(config, serving, ToAutomaticSizes(flags.serve), budget));
  const int status = Print(flags.json ? ServingPlanJson(plan) : ServingPlanText(plan));
  return plan.verdict.fits ? status : 1;
}

int Run(PlanFlags& flags) {
  flags.serve.checkpoint = flags.config.empty() ? flags.checkpoint : flags.config;
  const auto config = ReadConfig(flags);
  if (!config.ok()) return ReportStatus(config.error());
  const Result<ServingOptions> serving = ToServingOptions(flags.serve);
  if (!serving.ok()) return ReportStatus(serving.error());
  const Result<int> status =
      flags.devices.empty() ? PlanHost(flags, *config, *serving) : PlanCards(flags, *config, *serving);
  return status.ok() ? *status : ReportStatus(status.error());
}

CLI::Validator IsDeviceSize() {
  return CLI::Validator(
      [](const std::string& text) {
        const Result<uint64_t> bytes = ParseByteSize(text, Gigabyte::kBinary);
        return bytes.ok() ? std::string() : bytes.error().message();
      },
      "");
}

void AddDeviceFlags(CLI::App& command, PlanFlags& flags) {
  constexpr const char* kRig = "Rigs of cards";
  command
      .add_option("--device", flags.devices,
                  "Memory of a card, once for each: 96GB, 84GiB; GB as makers of cards count, 2^30")
      ->check(IsDeviceSize())
      ->type_name("BYTES")
      ->group(kRig);
  command
      .add_option("--device-reserve", flags.device_reserve,
                  "Of each card, for the driver, libraries and the buffers of collectives")
      ->check(IsDeviceSize())
      ->type_name("BYTES")
      ->capture_default_str()
      ->group(kRig);
  command
      .add_option("--tp,--tensor-parallel-size", flags.tp,
                  "Cards that divide the dense tensors (all that can, or 1)")
      ->check(CLI::Range(1, 1024))
      ->group(kRig);
  command
      .add_option("--ep,--ep-size,--expert-parallel-size", flags.ep,
                  "Groups of cards that divide the experts, by capacity (every card one)")
      ->check(CLI::Range(1, 1024))
      ->group(kRig);
  command.add_option("--engram", flags.engram, "Where the n-gram tables are")
      ->check(CLI::IsMember({"host", "device"}))
      ->capture_default_str()
      ->group(kRig);
  command.add_option("--dspark", flags.dspark, "The draft head on the cards, or not (off)")
      ->check(CLI::IsMember({"auto", "off"}))
      ->capture_default_str()
      ->group(kRig);
  command.add_flag("--language-model-only", flags.language_model_only, "No vision tower on the cards")
      ->group(kRig);
}

}  // namespace

void AddPlanCommand(CLI::App& root, Invocation& invocation) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* const command = root.add_subcommand(
      "plan", "List every byte that serving a checkpoint takes, before anything is loaded");
  command->footer(
      "What serve would print with the same flags. With --device: one plan for a rig of cards.\n"
      "Exit status: 0 it fits, 1 it does not (or nothing could be read), 2 wrong usage.");
  CLI::App* const what = command->add_option_group("what");
  what->add_option("checkpoint,-m,--model", flags->checkpoint,
                   "A checkpoint directory; only its config is read");
  what->add_option("--config", flags->config, "Only this config.json");
  what->require_option(1);
  AddMemoryFlags(*command, flags->serve);
  AddDeviceFlags(*command, *flags);
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, &invocation] { invocation.run = [flags] { return Run(*flags); }; });
}

}  // namespace millrace::app
