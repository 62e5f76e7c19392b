#pragma once

#include <string>

#include "api/http_server.h"
#include "api/service.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "formats/hf_config.h"
#include "rig/memory_plan.h"
#include "rig/plan_search.h"

namespace millrace::app {

// What the parts of a server are asked for.
struct ServingOptions {
  engine::LoadOptions load;
  engine::EngineOptions engine;
  api::HttpServerOptions http;
  api::ServiceOptions service;
};

// Which sizes are to be the largest that fit.
struct AutomaticSizes {
  bool max_model_len = false;
  bool max_num_seqs = false;
};

// A server's options with every size decided, and the memory they take.
struct ServingPlan {
  ServingOptions options;
  std::vector<rig::PlanSetting> settings;
  rig::MemoryPlan memory;
  rig::PlanVerdict verdict;
};

// What a plan lists.
enum class PlanScope : uint8_t {
  kProcess,  // all of a server on one machine
  kCard,     // what the engine holds on each card of a rig beside weights: pages, states, scratch
};

// Sizes what is automatic and plans every line of memory, from the config alone. Whether it fits is for the
// caller to look up in the verdict. Errors are kInvalidArgument and name the option that is out of range, or
// kMismatch and say what of the config cannot be run.
Result<ServingPlan> PlanServing(const formats::ModelConfig& config, ServingOptions options,
                                const AutomaticSizes& automatic, const rig::MemoryBudget& budget,
                                PlanScope scope = PlanScope::kProcess);

// What the process holds beside the engine and the checkpoint, for options whose sizes are decided: prompts,
// clients' bytes, tokenizer, threads.
std::vector<PlannedMemory> PlanProcess(const formats::ModelConfig& config, const ServingOptions& options);

// "--max-model-len 4096, --max-num-seqs 4, ...": the sizes decided, on one line.
std::string SettingsText(const std::vector<rig::PlanSetting>& settings);

// The table and the verdict, as `plan` and `serve` print them.
std::string ServingPlanText(const ServingPlan& plan);

// Opens accounts for the lines that no part of the server opens one for: tokenizer, threads, the process.
HeldMemory HoldProcessMemory(const ServingPlan& plan, MemoryLedger& ledger);

}  // namespace millrace::app
