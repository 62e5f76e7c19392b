#include "model/weights_plan.h"

#include <fmt/format.h>

#include "base/units.h"
#include "model/catalogue.h"
#include "model/checkpoint.h"
#include "model/engram_hash.h"
#include "model/weights.h"

namespace millrace::model {

std::vector<PlannedMemory> PlanWeights(const formats::ModelConfig& config) {
  uint64_t experts = 0, tables = 0, dense = 0, draft = 0, vision = 0;
  for (const TensorSpec& tensor : BuildCatalogue(config)) {
    switch (tensor.category) {
      case Category::kExpertWeights:
      case Category::kExpertScales:
        experts += tensor.bytes();
        break;
      case Category::kEngramTables:
        tables += tensor.bytes();
        break;
      case Category::kDraftExperts:
      case Category::kDraftOther:
        draft += tensor.bytes();
        break;
      case Category::kVision:
        vision += tensor.bytes();
        break;
      default:
        dense += tensor.bytes();
    }
  }
  std::vector<PlannedMemory> lines = {{"weights, routed experts", experts, "", true},
                                      {"weights, dense", dense, "", true},
                                      {"weights, n-gram tables", tables, "", true}};
  const auto not_run = [&](const char* name, uint64_t bytes) {
    if (bytes > 0)
      lines.push_back({name, 0, fmt::format("not run: {} stay on the drive", HumanBytes(bytes)), true});
  };
  not_run("weights, draft head", draft);
  not_run("weights, vision tower", vision);
  return lines;
}

std::vector<PlannedMemory> PlanCheckpoint(const LayerPlan& plan) {
  std::vector<PlannedMemory> lines = PlanWeights(plan.config);
  lines.push_back({"tensor index", Checkpoint::IndexBytes(BuildCatalogue(plan.config))});
  lines.push_back({"weights decoded", Weights::DecodedBytes(plan)});
  if (!plan.engram_layers.empty()) lines.push_back({"n-gram hash", EngramHash::BytesFor(plan.config)});
  return lines;
}

}  // namespace millrace::model
