#pragma once

#include <filesystem>

#include "base/result.h"
#include "rig/memory_plan.h"

namespace millrace::rig {

// What this process may still take: of the machine, or of its control group (a container's limit) where that
// leaves less. The cache of files counts as free on both sides, whole, so that two starts plan alike whatever
// was read before (MemAvailable itself moves with it); all that others hold for themselves counts as taken.
// Rounded down to 64 MiB. `root` is where proc and sys are mounted; kUnavailable when meminfo cannot be read.
Result<MemoryBudget> ReadMachineMemory(const std::filesystem::path& root = "/");

}  // namespace millrace::rig
