#include "memory/sweep_child.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "base/log.h"
#include "base/process_memory.h"
#include "base/units.h"
#include "engine/recording_sink.h"
#include "model/checkpoint.h"
#include "support/counted_heap.h"

namespace millrace::testing {
namespace {

constexpr int64_t kAnswerTokens = 3;

template <typename T>
T Need(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  fmt::print(stderr, "memory_sweep: {}\n", result.error().message());
  std::exit(3);
}

// The most anonymous memory of the process, looked at all the time.
class ResidentPeak {
 public:
  ResidentPeak() : thread_([this] { Watch(); }) {}
  ~ResidentPeak() {
    stop_ = true;
    thread_.join();
  }
  uint64_t bytes() const { return peak_; }

 private:
  void Watch() {
    while (!stop_) {
      peak_ = std::max(peak_.load(), ReadProcessMemory().anonymous_bytes);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::atomic<uint64_t> peak_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Lines that a process without an HTTP server does not have; and what the process had before it began.
bool IsNotOfEngine(const PlannedMemory& line) {
  for (const char* name : {"connections", "request bodies", "queued output", "requests being decoded",
                           "answers in progress", "answers remembered", "tokenizer", "process"}) {
    if (line.name == name) return true;
  }
  return false;
}

// Taken from the system in one piece each, not from the heap.
bool IsMap(const PlannedMemory& line) {
  return line.name == "kv pages" || line.name == "prefix tails" ||
         (line.name.starts_with("scratch, ") && line.name != "scratch, batch layout");
}

app::ServingPlan PlanOf(const std::string& checkpoint, const SweepShape& shape) {
  const auto config = Need(model::Checkpoint::ReadConfig(checkpoint));
  return Need(app::PlanServing(config, OptionsOf(shape), {}, {uint64_t{1} << 40, "the test"}));
}

engine::GenerationRequest RequestOf(int64_t tokens, int64_t vocab_size, std::mt19937_64& random) {
  engine::GenerationRequest request;
  request.request_id = "sweep";
  for (int64_t t = 0; t < tokens - kAnswerTokens; ++t)
    request.prompt.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(vocab_size)));
  request.sampling.max_tokens = kAnswerTokens;
  request.sampling.ignore_eos = true;
  request.sampling.temperature = 1;
  request.sampling.top_p = 0.9F;
  request.sampling.seed = random();
  return request;
}

void RunRequests(engine::Engine& engine, const SweepShape& shape) {
  std::mt19937_64 random(shape.seed);
  const auto run = [&](const std::vector<int64_t>& lengths) {
    std::vector<std::shared_ptr<engine::RecordingSink>> sinks;
    for (const int64_t length : lengths) {
      sinks.push_back(std::make_shared<engine::RecordingSink>());
      (void)Need(engine.Submit(RequestOf(length, engine.vocab_size(), random), sinks.back()));
    }
    for (const auto& sink : sinks) {
      const auto finish = sink->WaitForFinish(std::chrono::minutes(10));
      if (!finish || finish->reason != engine::FinishReason::kLength) {
        fmt::print(stderr, "memory_sweep: a request ended with {}\n",
                   finish && finish->error ? finish->error->message() : "no end, or another than its length");
        std::exit(4);
      }
    }
  };
  run(std::vector<int64_t>(static_cast<size_t>(shape.max_num_seqs), shape.max_model_len));
  std::vector<int64_t> shorter;
  for (int i = 0; i < shape.max_num_seqs; ++i) {
    const auto spread = static_cast<uint64_t>(std::min<int64_t>(shape.max_model_len, 400) - kAnswerTokens);
    shorter.push_back(kAnswerTokens + 1 + static_cast<int64_t>(random() % spread));
  }
  run(shorter);
}

}  // namespace

std::vector<std::string> SweepShape::ToArguments() const {
  return {std::to_string(max_model_len),
          std::to_string(max_num_seqs),
          std::to_string(chunk),
          std::to_string(threads),
          fast_numerics ? "1" : "0",
          std::to_string(seed),
          forget};
}

SweepShape SweepShape::FromArguments(const std::vector<std::string>& a) {
  return {std::stoll(a.at(0)),
          std::stoi(a.at(1)),
          std::stoll(a.at(2)),
          std::stoi(a.at(3)),
          a.at(4) == "1",
          std::stoull(a.at(5)),
          a.at(6)};
}

app::ServingOptions OptionsOf(const SweepShape& shape) {
  app::ServingOptions options;
  options.load.threads = shape.threads;
  options.load.stepper.max_model_len = shape.max_model_len;
  options.load.stepper.max_num_seqs = shape.max_num_seqs;
  options.load.stepper.max_batch_tokens = shape.chunk;
  options.load.stepper.numerics = shape.fast_numerics ? model::Numerics::kFast : model::Numerics::kReference;
  options.engine.max_queue = 1;
  return options;
}

std::string SweepMeasurement::Violation() const {
  const auto above = [](uint64_t measured, uint64_t planned) {
    return static_cast<double>(measured) > 1.02 * static_cast<double>(planned);
  };
  if (refusals > 0) return fmt::format("{} allocations went beyond the plan", refusals);
  if (above(resident_bytes, planned_bytes)) {
    return fmt::format("resident {}, planned {}", HumanBytes(resident_bytes), HumanBytes(planned_bytes));
  }
  if (above(heap_bytes, planned_heap_bytes)) {
    return fmt::format("heap {}, planned {}", HumanBytes(heap_bytes), HumanBytes(planned_heap_bytes));
  }
  if (!overdrawn_account.empty())
    return fmt::format("'{}' held more than was planned for it", overdrawn_account);
  return {};
}

SweepMeasurement RunSweepChild(const std::string& checkpoint, const SweepShape& shape) {
  if (!SetUpLog("warning").ok()) std::exit(3);
  SweepMeasurement measured;
  const uint64_t resident_before = ReadProcessMemory().anonymous_bytes;
  const int64_t heap_before = counted_heap.live_bytes;
  const ResidentPeak resident;
  const app::ServingPlan plan = PlanOf(checkpoint, shape);
  for (const PlannedMemory& line : plan.memory.lines()) {
    if (line.mapped || IsNotOfEngine(line) || line.name == shape.forget) continue;
    measured.planned_bytes += line.bytes;
    if (!IsMap(line)) measured.planned_heap_bytes += line.bytes;
  }
  // While it loads, what is not yet mapped leaves room.
  counted_heap.limit_bytes = heap_before + static_cast<int64_t>(measured.planned_bytes);
  engine::LoadedModel loaded = Need(engine::LoadStepModel(checkpoint, plan.options.load));
  counted_heap.ResetPeak();
  counted_heap.limit_bytes = heap_before + static_cast<int64_t>(measured.planned_heap_bytes);
  {
    engine::Engine engine(std::move(loaded.model), plan.options.engine, loaded.ledger.get());
    RunRequests(engine, shape);
    for (const MemoryAccount* account : loaded.ledger->accounts()) {
      const bool foreseen = account->name() != "weights realigned";
      if (foreseen && account->peak_bytes() > account->planned_bytes())
        measured.overdrawn_account = account->name();
    }
  }
  measured.resident_bytes = resident.bytes() - resident_before;
  measured.heap_bytes = static_cast<uint64_t>(counted_heap.peak_bytes - heap_before);
  measured.refusals = counted_heap.refusals;
  return measured;
}

}  // namespace millrace::testing
