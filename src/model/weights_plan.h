#pragma once

#include <vector>

#include "base/planned_memory.h"
#include "formats/hf_config.h"
#include "model/layer_plan.h"

namespace millrace::model {

// The mapped weights that the text backbone reads, from the catalogue: routed experts, n-gram tables, and all
// else ("dense"). Components that are not run yet have a line of no bytes that says what stays on the drive.
std::vector<PlannedMemory> PlanWeights(const formats::ModelConfig& config);

// PlanWeights, and what a process holds beside them to find and read them: "tensor index" (Checkpoint),
// "weights decoded" (Weights), "n-gram hash" (EngramHash). Matrices that lie unaligned in their shard are not
// foreseen; released checkpoints have none.
std::vector<PlannedMemory> PlanCheckpoint(const LayerPlan& plan);

}  // namespace millrace::model
