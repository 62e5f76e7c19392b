#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/stats_board.h"

namespace millrace::engine {

struct WatchdogOptions {
  // A step that takes longer is reported, and again whenever that time has doubled. > 0.
  double slow_step_seconds = 30;
  // With work to do and without progress for longer, the engine is stuck. > 0.
  double stuck_after_seconds = 300;
};

bool IsStuck(const EngineStats& stats, const WatchdogOptions& options);

// What the watchdog has to say.
struct WatchReport {
  enum class Kind : uint8_t {
    kSlowStep,   // a step has taken too long and goes on
    kSlowEnded,  // such a step has ended
    kStuck,
    kRecovered,
  };
  Kind kind{};
  uint64_t step = 0;  // its number, from 0
  StepShape shape;    // of the step
  double seconds = 0;
  int running = 0;
  int waiting = 0;
};

// For the log, one line.
std::string Describe(const WatchReport& report);

// Turns looks at the counters into reports. One thread.
class StepWatch {
 public:
  explicit StepWatch(const WatchdogOptions& options) : options_(options) {}

  // What is to be reported since the look before; looks may be any time apart.
  std::vector<WatchReport> Look(const EngineStats& stats);

 private:
  void LookAtStep(const EngineStats& stats, std::vector<WatchReport>& reports);
  void LookAtProgress(const EngineStats& stats, std::vector<WatchReport>& reports);

  const WatchdogOptions options_;
  std::optional<WatchReport> slow_;  // reported, and not ended at the look before
  double next_report_seconds_ = 0;   // of that step
  std::optional<double> stuck_seconds_;
};

// While it lives, looks at a board from a thread of its own, logs what there is to report (slow steps and
// recoveries as warnings, a stuck engine as an error) and counts it on the board, which outlives it.
class Watchdog {
 public:
  Watchdog(StatsBoard& board, const WatchdogOptions& options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::engine
