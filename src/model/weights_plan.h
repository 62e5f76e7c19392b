#pragma once

#include <vector>

#include "base/planned_memory.h"
#include "formats/hf_config.h"

namespace millrace::model {

// The mapped weights that the text backbone reads, from the catalogue: routed experts, n-gram tables, and all
// else ("dense"). Components that are not run yet have a line of no bytes that says what stays on the drive.
std::vector<PlannedMemory> PlanWeights(const formats::ModelConfig& config);

}  // namespace millrace::model
