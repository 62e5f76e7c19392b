#include "app/serving_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/units.h"
#include "model/layer_plan.h"
#include "model/sequence_state.h"
#include "model/weights_plan.h"
#include "text/tokenizer.h"

namespace millrace::app {
namespace {

// Of a thread: the part of its stack that is ever touched, and what the allocator keeps for it.
constexpr uint64_t kThreadBytes = 64 * kKiB;
// Beside the pool's: the engine's and its watchdog, the I/O thread, two that decode requests, the reporter,
// the one that waits for a second signal, main.
constexpr int kOtherThreads = 8;
// Writable data of the program and its libraries (ICU, Boost, the allocator's own), measured on an idle
// server of the smallest model, and what parsing config, index and tokenizer leaves in the allocator.
constexpr uint64_t kProcessBytes = 3 * kMiB;

constexpr const char* kTokenizer = "tokenizer";
constexpr const char* kThreads = "threads";
constexpr const char* kProcess = "process";

constexpr const char* kBodySize = "--max-body-size";
constexpr const char* kTotalTokens = "--max-total-tokens";

// Gives `options` the values of the settings, which SettingsOf made.
void Apply(std::span<const rig::PlanSetting> settings, std::span<const int64_t> values,
           ServingOptions& options) {
  options.load.stepper.max_model_len = values[0];
  options.load.stepper.max_num_seqs = static_cast<int>(values[1]);
  options.engine.max_num_seqs = static_cast<int>(values[1]);
  options.service.max_num_seqs = static_cast<int>(values[1]);
  options.load.stepper.max_batch_tokens = values[2];
  options.engine.prefill_chunk = values[2];
  for (size_t i = 3; i < settings.size(); ++i) {
    if (settings[i].flag == kTotalTokens) options.load.stepper.kv_tokens = values[i];
    if (settings[i].flag != kBodySize) continue;
    options.http.max_body_bytes = static_cast<size_t>(values[i]);
    options.service.max_body_bytes = static_cast<size_t>(values[i]);
  }
}

std::vector<rig::PlanSetting> SettingsOf(const formats::ModelConfig& config, const ServingOptions& options,
                                         PlanScope scope) {
  const engine::StepperOptions& stepper = options.load.stepper;
  const int64_t limit = std::min(config.max_position_embeddings, stepper.kv_tokens.value_or(INT64_MAX));
  std::vector<rig::PlanSetting> settings = {
      {"--max-model-len", "tokens", stepper.max_model_len.value_or(limit),
       std::min(model::kPageTokens, limit), limit, model::kPageTokens},
      {"--max-num-seqs", "sequences", stepper.max_num_seqs, 1, engine::kMaxNumSeqs, 1},
      {"--max-num-batched-tokens", "tokens", stepper.max_batch_tokens, 1, engine::kMaxBatchTokens, 64}};
  if (scope == PlanScope::kProcess) {
    const auto body = static_cast<int64_t>(options.http.max_body_bytes);
    settings.push_back({kBodySize, "bytes", body, std::min<int64_t>(body, kMiB), int64_t{1} << 40, kMiB});
  }
  if (stepper.kv_tokens) {
    // Never so small that one sequence of the length asked for has no room.
    const int64_t least = std::max(model::kPageTokens, stepper.max_model_len.value_or(0));
    settings.push_back({kTotalTokens, "tokens", *stepper.kv_tokens, std::min(least, *stepper.kv_tokens),
                        int64_t{1} << 40, model::kPageTokens});
  }
  return settings;
}

void Append(std::vector<PlannedMemory> more, std::vector<PlannedMemory>& lines) {
  std::move(more.begin(), more.end(), std::back_inserter(lines));
}

int ThreadsOf(const ServingOptions& options) {
  return options.load.threads > 0 ? options.load.threads : engine::UsableProcessors();
}

// Every line; `checkpoint` are those of model::PlanCheckpoint.
Result<rig::MemoryPlan> PlanLines(const model::LayerPlan& layers,
                                  const std::vector<PlannedMemory>& checkpoint,
                                  const ServingOptions& options) {
  std::vector<PlannedMemory> lines = checkpoint;
  MILLRACE_ASSIGN_OR_RETURN(
      std::vector<PlannedMemory> of_engine,
      engine::ModelStepper::PlanMemory(layers, options.load.stepper, ThreadsOf(options)));
  Append(std::move(of_engine), lines);
  Append(PlanProcess(layers.config, options), lines);
  return rig::MemoryPlan(std::move(lines));
}

// Beside weights; no threads compute there.
Result<rig::MemoryPlan> PlanCardLines(const model::LayerPlan& layers, const ServingOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<PlannedMemory> lines,
                            engine::ModelStepper::PlanMemory(layers, options.load.stepper, /*n_threads=*/1));
  return rig::MemoryPlan(std::move(lines));
}

}  // namespace

std::vector<PlannedMemory> PlanProcess(const formats::ModelConfig& config, const ServingOptions& options) {
  const int64_t max_model_len = *options.load.stepper.max_model_len;
  std::vector<PlannedMemory> lines;
  lines.push_back({"sequence tokens",
                   engine::SequenceTokenBytes(max_model_len, options.load.stepper.max_num_seqs),
                   "max-num-seqs x max-model-len"});
  lines.push_back({"prompts", engine::PromptBytes(max_model_len, options.engine),
                   "max-num-seqs x max-model-len, max-queue"});
  Append(api::HttpServer::PlanMemory(options.http), lines);
  Append(api::Service::PlanMemory(options.service, max_model_len, options.load.stepper.max_num_seqs), lines);
  lines.push_back({kTokenizer, text::Tokenizer::BytesFor(config.vocab_size)});
  lines.push_back(
      {kThreads, static_cast<uint64_t>(ThreadsOf(options) - 1 + kOtherThreads) * kThreadBytes, "threads"});
  lines.push_back({kProcess, kProcessBytes});
  return lines;
}

Result<ServingPlan> PlanServing(const formats::ModelConfig& config, ServingOptions options,
                                const AutomaticSizes& automatic, const rig::MemoryBudget& budget,
                                PlanScope scope) {
  MILLRACE_ASSIGN_OR_RETURN(const model::LayerPlan layers, model::LayerPlan::Build(config));
  std::vector<PlannedMemory> checkpoint;
  if (scope == PlanScope::kProcess) checkpoint = model::PlanCheckpoint(layers);
  ServingPlan plan;
  plan.settings = SettingsOf(config, options, scope);
  const rig::PlanFunction plan_for = [&](std::span<const int64_t> values) {
    ServingOptions tried = options;
    Apply(plan.settings, values, tried);
    return scope == PlanScope::kCard ? PlanCardLines(layers, tried) : PlanLines(layers, checkpoint, tried);
  };
  std::vector<size_t> sized;
  if (automatic.max_model_len) sized.push_back(0);
  if (automatic.max_num_seqs) sized.push_back(1);
  MILLRACE_ASSIGN_OR_RETURN(plan.memory, rig::SizeToFit(plan_for, plan.settings, sized, budget));
  MILLRACE_ASSIGN_OR_RETURN(plan.verdict, rig::Judge(plan_for, plan.settings, budget));
  std::vector<int64_t> values;
  for (const rig::PlanSetting& setting : plan.settings) values.push_back(setting.value);
  Apply(plan.settings, values, options);
  plan.options = std::move(options);
  return plan;
}

std::string SettingsText(const std::vector<rig::PlanSetting>& settings) {
  std::string text;
  for (const rig::PlanSetting& setting : settings)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", setting.flag, setting.value);
  return text;
}

std::string ServingPlanText(const ServingPlan& plan) {
  return fmt::format("{}\n{}\n{}", rig::PlanTable(plan.memory), SettingsText(plan.settings),
                     rig::VerdictText(plan.verdict));
}

HeldMemory HoldProcessMemory(const ServingPlan& plan, MemoryLedger& ledger) {
  std::vector<PlannedMemory> lines;
  for (const PlannedMemory& line : plan.memory.lines())
    if (line.name == kTokenizer || line.name == kThreads || line.name == kProcess) lines.push_back(line);
  return HeldMemory(lines, &ledger);
}

}  // namespace millrace::app
