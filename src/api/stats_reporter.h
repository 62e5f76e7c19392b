#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "engine/engine.h"

namespace millrace::api {

struct StatsReporterOptions {
  std::chrono::milliseconds interval{10'000};
  LogFormat format = LogFormat::kText;
};

// What an engine did between two looks at its counters.
struct Throughput {
  double prompt_tokens_per_second = 0;
  double generated_tokens_per_second = 0;
  int running = 0;
  int waiting = 0;
};

// nullopt: nothing was done and nothing is to do.
std::optional<Throughput> ThroughputBetween(const engine::EngineStats& before, const engine::EngineStats& now,
                                            double seconds);

// In vLLM's words, which operators search for: "Engine 000: Avg prompt throughput: 12.3 tokens/s, ...".
std::string StatsLine(const Throughput& throughput);

// While it lives, logs a line each interval in which the engine was busy, from a thread of its own. The
// engine outlives it.
class StatsReporter {
 public:
  StatsReporter(const engine::Engine& engine, StatsReporterOptions options);
  ~StatsReporter();
  StatsReporter(const StatsReporter&) = delete;
  StatsReporter& operator=(const StatsReporter&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::api
