#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/serving_plan.h"

namespace millrace::testing {

// One configuration of an engine, and which line of its plan to forget: a plan that lacks one must be found
// out.
struct SweepShape {
  int64_t max_model_len = 0;
  int max_num_seqs = 1;
  int64_t chunk = 1;
  int threads = 1;
  bool fast_numerics = false;
  uint64_t seed = 0;  // of prompts and of the shorter requests' lengths
  std::string forget = {};

  std::vector<std::string> ToArguments() const;
  static SweepShape FromArguments(const std::vector<std::string>& arguments);
};

// What serving with `shape` is asked for.
app::ServingOptions OptionsOf(const SweepShape& shape);

// What one process held at its most.
struct SweepMeasurement {
  uint64_t planned_bytes = 0;       // for the engine, mapped weights not among them
  uint64_t planned_heap_bytes = 0;  // of these, what does not come from maps of the system
  uint64_t resident_bytes = 0;      // anonymous; these two beyond what the process began with
  uint64_t heap_bytes = 0;
  int64_t refusals = 0;           // allocations beyond the plan
  std::string overdrawn_account;  // that held more than was planned for it; empty: none

  // The first promise that was broken, in words; empty when all were kept.
  std::string Violation() const;
};

// Runs an engine of `shape` over the checkpoint in this process: as many requests of full length as it has
// sequences at once, then shorter ones of random lengths. Ends the process with a message when anything
// fails.
SweepMeasurement RunSweepChild(const std::string& checkpoint, const SweepShape& shape);

}  // namespace millrace::testing
