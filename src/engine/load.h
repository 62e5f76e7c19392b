#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/ledger.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/model_stepper.h"
#include "model/checkpoint.h"

namespace millrace::engine {

struct LoadOptions {
  StepperOptions stepper;
  int threads = 0;  // of the forward pass; 0: one for each processor this process may use
};

// A checkpoint ready to run, and what it stands on. `model` refers to the rest: give it to an engine and keep
// this object until the engine is gone.
struct LoadedModel {
  std::unique_ptr<MemoryLedger> ledger;
  HeldMemory held;  // the checkpoint's accounts
  std::unique_ptr<model::Checkpoint> checkpoint;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<ModelStepper> model;
};

// Opens `dir`, derives the n-gram hash, plans and reserves all memory; logs a line for each stage: weights,
// components that cannot serve, tables, KV tokens and the concurrency they allow. Errors name the file or the
// option.
Result<LoadedModel> LoadStepModel(const std::filesystem::path& dir, const LoadOptions& options);

// Processors this process may use: at least 1.
int UsableProcessors();

}  // namespace millrace::engine
