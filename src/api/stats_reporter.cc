#include "api/stats_reporter.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/seconds.h"

namespace millrace::api {
namespace {

using Clock = std::chrono::steady_clock;

void Report(const Throughput& throughput, LogFormat format) {
  if (format == LogFormat::kText) return spdlog::info("{}", StatsLine(throughput));
  const LogField fields[] = {{"prompt_tok_s", throughput.prompt_tokens_per_second},
                             {"generated_tok_s", throughput.generated_tokens_per_second},
                             {"running", int64_t{throughput.running}},
                             {"waiting", int64_t{throughput.waiting}}};
  LogEvent("stats", fields);
}

}  // namespace

std::optional<Throughput> ThroughputBetween(const engine::EngineStats& before, const engine::EngineStats& now,
                                            double seconds) {
  const uint64_t prompt = now.prompt_tokens_total - before.prompt_tokens_total;
  const uint64_t generated = now.generation_tokens_total - before.generation_tokens_total;
  if (prompt == 0 && generated == 0 && now.running == 0 && now.waiting == 0) return std::nullopt;
  return Throughput{static_cast<double>(prompt) / seconds, static_cast<double>(generated) / seconds,
                    now.running, now.waiting};
}

std::string StatsLine(const Throughput& throughput) {
  return fmt::format(
      "Engine 000: Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} tokens/s, "
      "Running: {} reqs, Waiting: {} reqs",
      throughput.prompt_tokens_per_second, throughput.generated_tokens_per_second, throughput.running,
      throughput.waiting);
}

struct StatsReporter::Impl {
  Impl(const engine::Engine& engine_in, StatsReporterOptions options_in)
      : engine(engine_in), options(options_in), thread([this] { Run(); }) {}

  void Run() {
    engine::EngineStats before = engine.stats();
    Clock::time_point began = Clock::now();
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, options.interval, [this] { return ending; })) {
      const engine::EngineStats stats = engine.stats();
      const Clock::time_point now = Clock::now();
      const double seconds = Seconds(now - began);
      if (const auto throughput = ThroughputBetween(before, stats, seconds))
        Report(*throughput, options.format);
      before = stats;
      began = now;
    }
  }

  const engine::Engine& engine;
  const StatsReporterOptions options;
  std::mutex mutex;
  std::condition_variable wake;
  bool ending = false;  // guarded by mutex
  std::thread thread;   // last: it uses the rest
};

StatsReporter::StatsReporter(const engine::Engine& engine, StatsReporterOptions options)
    : impl_(std::make_unique<Impl>(engine, options)) {}

StatsReporter::~StatsReporter() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->wake.notify_all();
  impl_->thread.join();
}

}  // namespace millrace::api
