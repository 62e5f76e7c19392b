#include "engine/load.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/seconds.h"
#include "base/units.h"
#include "model/engram_hash.h"
#include "model/layer_plan.h"
#include "model/weights_plan.h"

namespace millrace::engine {
namespace {

constexpr int kMaxThreads = 1024;

void LogIncomplete(const model::CheckpointReport& report, model::Component component, std::string_view name) {
  const std::string problems = report.ListOf(component, 1);
  if (!problems.empty()) spdlog::warn("{} cannot be used: {}", name, problems);
}

void LogPlan(const std::vector<PlannedMemory>& checkpoint, const std::vector<PlannedMemory>& engine) {
  uint64_t mapped = 0, own = 0;
  for (const std::vector<PlannedMemory>* lines : {&checkpoint, &engine})
    for (const PlannedMemory& line : *lines) (line.mapped ? mapped : own) += line.bytes;
  spdlog::info("memory plan: {} of mapped weights, {} for the engine", HumanBytes(mapped), HumanBytes(own));
}

// The lines that no part opens an account for.
std::vector<PlannedMemory> OfLoading(const std::vector<PlannedMemory>& plan) {
  std::vector<PlannedMemory> lines;
  for (const PlannedMemory& line : plan)
    if (line.mapped || line.name == "tensor index" || line.name == "n-gram hash") lines.push_back(line);
  return lines;
}

}  // namespace

int UsableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

Result<LoadedModel> LoadStepModel(const std::filesystem::path& dir, const LoadOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("threads is {}; it must be from 1 to {}, or 0 for one per processor",
                             options.threads, kMaxThreads));
  }
  LoadedModel loaded;
  loaded.ledger = std::make_unique<MemoryLedger>();

  const auto opening = std::chrono::steady_clock::now();
  MILLRACE_ASSIGN_OR_RETURN(auto checkpoint, model::Checkpoint::Open(dir));
  loaded.checkpoint = std::make_unique<model::Checkpoint>(std::move(checkpoint));
  const model::CheckpointReport& report = loaded.checkpoint->report();
  spdlog::info("weights: {} tensors, {} mapped from {} in {:.2f} s",
               WithThousands(report.found.total.tensors), HumanBytes(report.found.total.bytes), dir.string(),
               SecondsSince(opening));
  LogIncomplete(report, model::Component::kDraft, "the draft head");
  LogIncomplete(report, model::Component::kVision, "the vision tower");

  const auto hashing = std::chrono::steady_clock::now();
  MILLRACE_ASSIGN_OR_RETURN(auto engram, model::EngramHash::ForCheckpoint(loaded.checkpoint->config(), dir));
  spdlog::info("n-gram tables: {} token classes, {} layers, in {:.2f} s",
               WithThousands(static_cast<uint64_t>(engram.classes().n_classes)), engram.n_layers(),
               SecondsSince(hashing));

  loaded.pool = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : UsableProcessors());
  MILLRACE_ASSIGN_OR_RETURN(const auto plan, model::LayerPlan::Build(loaded.checkpoint->config()));
  MILLRACE_ASSIGN_OR_RETURN(const auto memory,
                            ModelStepper::PlanMemory(plan, options.stepper, loaded.pool->size()));
  const std::vector<PlannedMemory> stored = model::PlanCheckpoint(plan);
  LogPlan(stored, memory);
  loaded.held = HeldMemory(OfLoading(stored), loaded.ledger.get());
  MILLRACE_ASSIGN_OR_RETURN(
      loaded.model, ModelStepper::Create(*loaded.checkpoint, std::move(engram), *loaded.pool, options.stepper,
                                         loaded.ledger.get()));
  const int64_t kv_tokens = loaded.model->kv_tokens();
  const int64_t max_model_len = loaded.model->max_model_len();
  spdlog::info("KV pool: {} tokens; maximum concurrency for {} tokens: {:.2f}x ({} slots, {} threads)",
               WithThousands(static_cast<uint64_t>(kv_tokens)),
               WithThousands(static_cast<uint64_t>(max_model_len)),
               static_cast<double>(kv_tokens) / static_cast<double>(max_model_len),
               options.stepper.max_num_seqs, loaded.pool->size());
  return loaded;
}

}  // namespace millrace::engine
