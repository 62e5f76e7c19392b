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

// Sizes what is automatic and plans every line of memory, from the config alone. Whether it fits is for the
// caller to look up in the verdict. Errors name the option that is out of range, or what of the config cannot
// be run.
Result<ServingPlan> PlanServing(const formats::ModelConfig& config, ServingOptions options,
                                const AutomaticSizes& automatic, const rig::MemoryBudget& budget);

// The table and the verdict, as `plan` and `serve` print them.
std::string ServingPlanText(const ServingPlan& plan);

// Opens accounts for the lines that no part of the server opens one for: tokenizer, threads, the process.
HeldMemory HoldProcessMemory(const ServingPlan& plan, MemoryLedger& ledger);

}  // namespace millrace::app
