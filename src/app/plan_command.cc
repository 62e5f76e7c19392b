#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/byte_size.h"
#include "app/card_serving.h"
#include "app/check_tokenizer.h"
#include "app/commands.h"
#include "app/plan_report.h"
#include "app/serve_flags.h"
#include "app/serving_plan.h"
#include "app/settings.h"
#include "formats/hf_config.h"
#include "model/checkpoint.h"
#include "text/chat_prompt.h"
#include "text/tokenizer.h"

namespace millrace::app {
namespace {

constexpr const char* kRigFlags[] = {"--tp",     "--ep",     "--device-reserve",
                                     "--engram", "--dspark", "--language-model-only"};

struct PlanFlags {
  std::vector<std::string> configs;  // as given: of the model, or of settings
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

// The files of --config by what they are.
struct ConfigFiles {
  std::string model;     // a config.json
  std::string settings;  // what serve's --config takes
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

Error WrongUsage(std::string message) {
  return Error(ErrorCode::kInvalidArgument, std::move(message));
}

// JSON is the model's; no file of settings begins with a brace.
Result<ConfigFiles> SortConfigs(const std::vector<std::string>& paths) {
  ConfigFiles files;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    char first = 0;
    file >> first;  // past blanks
    // What cannot be read is reported by who reads it: a file of the model unless there is one.
    const bool is_model = first == '{' || (!file && files.model.empty());
    std::string& place = is_model ? files.model : files.settings;
    if (!place.empty()) {
      return WrongUsage(fmt::format("--config {} and --config {} are both {}; give one", place, path,
                                    is_model ? "of a model" : "files of settings"));
    }
    place = path;
  }
  return files;
}

// Flags of rigs without a card, which would change nothing. `--tp 1` is what serve takes for every machine.
Status CheckRigFlags(const CLI::App& command, const PlanFlags& flags) {
  if (!flags.devices.empty()) return {};
  for (const char* const name : kRigFlags) {
    if (command.get_option(name)->count() == 0) continue;
    if (std::string_view(name) == "--tp" && flags.tp == 1) continue;
    return WrongUsage(
        fmt::format("{} is for rigs of cards and there is none; give --device BYTES for each card, or leave "
                    "{} out",
                    name, name));
  }
  return {};
}

// Of the command line, the environment and files: a checkpoint or a model's config, for a machine or cards.
Status CheckInput(const CLI::App& command, const PlanFlags& flags, const ConfigFiles& files) {
  if (files.model.empty() && flags.serve.checkpoint.empty())
    return WrongUsage(
        "nothing to plan: give a checkpoint directory, or --config and the config.json of a model");
  if (!flags.devices.empty() && command.get_option("--ram")->count() > 0) {
    return WrongUsage(
        "--ram is the memory of one machine, and the budget of a rig is that of its --device cards; leave "
        "out "
        "--ram (or MILLRACE_RAM), or the cards");
  }
  return {};
}

Result<rig::CardRigOptions> ToCardRigOptions(const PlanFlags& flags) {
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
  return options;
}

Result<int> PlanOnCards(const PlanFlags& flags, const formats::ModelConfig& config,
                        const ServingOptions& serving) {
  MILLRACE_ASSIGN_OR_RETURN(const rig::CardRigOptions cards, ToCardRigOptions(flags));
  MILLRACE_ASSIGN_OR_RETURN(const CardServingPlan plan,
                            PlanCards(config, serving, ToAutomaticSizes(flags.serve), cards));
  const int status = Print(flags.json ? CardServingJson(plan) : CardServingText(plan));
  return plan.fits() ? status : 1;
}

Result<int> PlanOnHost(const PlanFlags& flags, const formats::ModelConfig& config,
                       const ServingOptions& serving) {
  MILLRACE_ASSIGN_OR_RETURN(const rig::MemoryBudget budget, ToBudget(flags.serve));
  MILLRACE_ASSIGN_OR_RETURN(const ServingPlan plan,
                            PlanServing(config, serving, ToAutomaticSizes(flags.serve), budget));
  const int status = Print(flags.json ? ServingPlanJson(plan) : ServingPlanText(plan));
  return plan.verdict.fits ? status : 1;
}

// What serve would be asked for by the same flags, environment and file of settings.
Result<ServingOptions> CompleteOptions(CLI::App& command, PlanFlags& flags, const ConfigFiles& files) {
  const bool has_checkpoint = !flags.serve.checkpoint.empty();
  if (!files.model.empty() && has_checkpoint) {
    return WrongUsage(
        fmt::format("both a checkpoint ({}) and the config of a model (--config {}) are given; "
                    "give one",
                    flags.serve.checkpoint, files.model));
  }
  MILLRACE_RETURN_IF_ERROR(CheckRigFlags(command, flags));
  SettingsRules rules;
  rules.not_settings.insert(rules.not_settings.end(),
                            {"json", "device-reserve", "ep", "engram", "dspark", "language-model-only"});
  rules.ignored = {"device", "tp"};  // serve takes them from scripts, and they change nothing there
  MILLRACE_ASSIGN_OR_RETURN(const Settings settings, CompleteSettings(command, files.settings, rules));
  for (const std::string& line : settings.UnknownVariables(ProcessEnvironment()))
    fmt::print(stderr, "millrace: {}\n", line);
  MILLRACE_RETURN_IF_ERROR(CheckInput(command, flags, files));
  if (!files.model.empty()) flags.serve.checkpoint = files.model;  // it wins over one of the environment
  return ToServingOptions(flags.serve);
}

// Refuses what serve would refuse, in its words and order, from headers alone: of the scales, only those are
// read that take no time.
Status CheckCheckpoint(const std::string& dir, const formats::ModelConfig& config) {
  MILLRACE_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, LoadTokenizerOf(dir, config));
  const auto encoder = text::ChatEncoder::Create(tokenizer);
  if (!encoder.ok()) return encoder.error();
  const auto checkpoint = model::Checkpoint::Open(dir, model::ScaleScan::kDense);
  return checkpoint.ok() ? Status() : checkpoint.error();
}

int Run(CLI::App& command, PlanFlags& flags) {
  const Result<ConfigFiles> files = SortConfigs(flags.configs);
  if (!files.ok()) return ReportUsage(files.error());
  const Result<ServingOptions> serving = CompleteOptions(command, flags, *files);
  if (!serving.ok()) return ReportUsage(serving.error());
  const auto config = files->model.empty() ? model::Checkpoint::ReadConfig(flags.serve.checkpoint)
                                           : formats::ReadHfConfig(files->model);
  if (!config.ok()) return ReportStatus(config.error());
  if (files->model.empty()) {
    const Status checked = CheckCheckpoint(flags.serve.checkpoint, *config);
    if (!checked.ok()) return ReportStatus(checked.error());
  }
  const Result<int> status =
      flags.devices.empty() ? PlanOnHost(flags, *config, *serving) : PlanOnCards(flags, *config, *serving);
  // Usage counts even here: a value that this model does not allow, --max-model-len above its limit.
  return status.ok() ? *status : ReportRun(status.error());
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
      ->allow_extra_args(false)
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
      .add_option("--tp,--tensor-parallel-size,--tp-size", flags.tp,
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
      "What serve would print with the same flags, MILLRACE_ variables and file of settings: all of serve's "
      "flags "
      "are accepted. With --device: one plan for a rig of cards.\n"
      "Exit status: 0 it fits, 1 it does not (or nothing could be read), 2 wrong usage.");
  command
      ->add_option(
          "--config", flags->configs,
          "The config.json of a model, in place of a checkpoint, of which no other file is read; or a "
          "file of 'flag: value' lines as serve takes it (it does not begin with a brace); or one of "
          "each")
      ->allow_extra_args(false)
      ->type_name("FILE");
  AddDeviceFlags(*command, *flags);
  AddSettingFlags(*command, flags->serve);
  HideFlagsWithoutMemory(*command);
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback(
      [flags, command, &invocation] { invocation.run = [flags, command] { return Run(*command, *flags); }; });
}

}  // namespace millrace::app
