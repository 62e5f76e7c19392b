#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "engine/model_stepper.h"
#include "rig/bench_row.h"
#include "rig/team.h"

namespace millrace::app {

struct ContextRunOptions {
  int64_t prefill_tokens = int64_t{1} << 20;  // of the long prompt; at least kTimedChunks + 1 chunks
  int64_t decode_tokens = 32;                 // after it, under the clock
  int64_t chunk_tokens = 512;                 // of one step
  model::LateLayers late_layers = model::LateLayers::kNeeded;
  model::Numerics numerics = model::Numerics::kFast;
};

// What a long prompt's speed is compared with: the same at this depth.
inline constexpr int64_t kShortContext = 1024;
// Chunks at the end of either prompt that are timed in turn with the other's.
inline constexpr int64_t kTimedChunks = 6;

struct ContextProgress {
  int64_t depth = 0;        // tokens read so far
  double tokens_per_s = 0;  // since the row before
};

struct ContextMemory {
  uint64_t planned_bytes = 0;  // all accounts of the ledger: everything but mapped weights
  uint64_t held_bytes = 0;     // what they held at most
  // By how much the process's own memory had grown at most, since before the model was made.
  uint64_t grown_bytes = 0;
};

struct ContextRun {
  std::vector<rig::BenchRow> rows;  // prefill at the prompt's end, and decode behind it; over kShortContext
  ContextMemory memory;
};

// Reads one prompt of random tokens through the engine's model, chunk by chunk as the engine would, and
// decodes behind it, in turn with a short sequence. Every token is really read. `on_progress` hears of every
// depth that is a power of two, and of the end of the untimed part. kInvalidArgument for options that do not
// fit the checkpoint.
Result<ContextRun> RunContext(const std::filesystem::path& checkpoint, rig::Team& team,
                              const ContextRunOptions& options,
                              FunctionRef<void(const ContextProgress&)> on_progress);

}  // namespace millrace::app
