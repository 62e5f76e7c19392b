#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "loadgen/load_session.h"
#include "loadgen/samples.h"
#include "loadgen/summary.h"

namespace millrace::loadgen {

// Independent prompts that share nothing.
struct RandomLoadOptions {
  int64_t num_prompts = 100;
  double request_rate = std::numeric_limits<double>::infinity();  // arrivals a second; infinite: closed loop
  int max_concurrency = 0;                                        // 0: no limit
  int64_t input_tokens = 1024;
  int64_t output_tokens = 128;
  double range_ratio = 0;  // lengths lie evenly in [1 - r, 1 + r] times these
  uint64_t arrival_seed = 0;
};

struct RandomLoadResult {
  Summary summary;
  double duration_s = 0;
  Samples late_s;  // by how much requests were sent after they arrived, because of max_concurrency
  bool interrupted = false;
};

// Sends the prompts and waits for all answers, or for SIGINT.
RandomLoadResult RunRandomLoad(LoadSession& session, const RandomLoadOptions& options);

}  // namespace millrace::loadgen
