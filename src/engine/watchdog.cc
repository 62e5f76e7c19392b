#include "engine/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/log.h"

namespace millrace::engine {
namespace {

std::string DescribeStep(const WatchReport& report) {
  const StepShape& shape = report.shape;
  return fmt::format("step {} ({} sequences, {} prompt tokens, {} decoding, depth {})", report.step,
                     shape.sequences, shape.prefill_tokens, shape.decode_rows, shape.depth);
}

}  // namespace

bool IsStuck(const EngineStats& stats, const WatchdogOptions& options) {
  return stats.seconds_since_progress > options.stuck_after_seconds;
}

std::string Describe(const WatchReport& report) {
  switch (report.kind) {
    case WatchReport::Kind::kSlowStep:
      return fmt::format("{} has run for {:.1f} s and goes on", DescribeStep(report), report.seconds);
    case WatchReport::Kind::kSlowEnded:
      return fmt::format("{} has ended after at least {:.1f} s", DescribeStep(report), report.seconds);
    case WatchReport::Kind::kStuck:
      return fmt::format(
          "the engine is stuck: no progress for {:.1f} s with {} running and {} waiting, in {}; /ready "
          "answers 503 until a step ends",
          report.seconds, report.running, report.waiting, DescribeStep(report));
    case WatchReport::Kind::kRecovered:
      return fmt::format("the engine moves again, after at least {:.1f} s without progress", report.seconds);
  }
  return "";
}

std::vector<WatchReport> StepWatch::Look(const EngineStats& stats) {
  std::vector<WatchReport> reports;
  LookAtStep(stats, reports);
  LookAtProgress(stats, reports);
  return reports;
}

void StepWatch::LookAtStep(const EngineStats& stats, std::vector<WatchReport>& reports) {
  const double age = stats.current_step_age_seconds;
  const bool same = slow_ && age > 0 && slow_->step == stats.steps_total;
  if (slow_ && !same) {
    slow_->kind = WatchReport::Kind::kSlowEnded;
    reports.push_back(*slow_);
    slow_.reset();
  }
  if (!same) next_report_seconds_ = options_.slow_step_seconds;
  if (same) slow_->seconds = age;
  if (age < next_report_seconds_) return;
  while (next_report_seconds_ <= age) next_report_seconds_ *= 2;
  slow_ = WatchReport{
      WatchReport::Kind::kSlowStep, stats.steps_total, stats.current_step, age, stats.running, stats.waiting};
  reports.push_back(*slow_);
}

void StepWatch::LookAtProgress(const EngineStats& stats, std::vector<WatchReport>& reports) {
  WatchReport report{WatchReport::Kind::kStuck,    stats.steps_total, stats.current_step,
                     stats.seconds_since_progress, stats.running,     stats.waiting};
  if (IsStuck(stats, options_)) {
    if (!stuck_seconds_) reports.push_back(report);
    stuck_seconds_ = stats.seconds_since_progress;
  } else if (stuck_seconds_) {
    report.kind = WatchReport::Kind::kRecovered;
    report.seconds = *stuck_seconds_;
    reports.push_back(report);
    stuck_seconds_.reset();
  }
}

struct Watchdog::Impl {
  Impl(StatsBoard& board_in, const WatchdogOptions& options)
      : board(board_in), period(PeriodOf(options)), watch(options), thread([this] { Run(); }) {}

  // Often enough that a report is late by a small part of its limit.
  static std::chrono::duration<double> PeriodOf(const WatchdogOptions& options) {
    const double limit = std::min(options.slow_step_seconds, options.stuck_after_seconds);
    return std::chrono::duration<double>(std::clamp(limit / 10, 0.001, 1.0));
  }

  void Run() {
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, period, [this] { return ending; })) {
      for (const WatchReport& report : watch.Look(board.Snapshot())) Tell(report);
    }
  }

  void Tell(const WatchReport& report) {
    switch (report.kind) {
      case WatchReport::Kind::kSlowStep:
        if (report.step != counted_step) board.OnSlowStep();
        counted_step = report.step;
        break;
      case WatchReport::Kind::kStuck:
        board.OnStuck();
        return spdlog::error("{}", Describe(report));
      case WatchReport::Kind::kSlowEnded:
      case WatchReport::Kind::kRecovered:
        break;
    }
    spdlog::warn("{}", Describe(report));
  }

  StatsBoard& board;
  const std::chrono::duration<double> period;
  StepWatch watch;
  std::optional<uint64_t> counted_step;
  std::mutex mutex;
  std::condition_variable wake;
  bool ending = false;  // guarded by mutex
  std::thread thread;   // last: it uses the rest
};

Watchdog::Watchdog(StatsBoard& board, const WatchdogOptions& options) {
  MILLRACE_CHECK(options.slow_step_seconds > 0 && options.stuck_after_seconds > 0,
                 "watchdog options out of range: the flags' parser must refuse them");
  impl_ = std::make_unique<Impl>(board, options);
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->wake.notify_all();
  impl_->thread.join();
}

}  // namespace millrace::engine
