#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "app/commands.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "model/synthetic_checkpoint.h"

namespace millrace::app {
namespace {

using model::PresetName;
using model::SyntheticPreset;

struct MakeCheckpointFlags {
  model::SyntheticOptions options;
  std::string preset;
  std::string dir;
  int threads = 0;  // 0: one a core
};

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const SyntheticPreset preset : model::kSyntheticPresets) names.emplace_back(PresetName(preset));
  return names;
}

void PrintSummary(const MakeCheckpointFlags& flags, const model::SyntheticSummary& summary, double seconds) {
  const formats::ModelConfig& config = summary.config;
  fmt::print("checkpoint  {}\n", flags.dir);
  fmt::print("preset  {}, seed {}\n", PresetName(flags.options.preset), flags.options.seed);
  fmt::print("model  {} layers, hidden {}, {} experts, vocabulary {}, {} draft stages, {}\n",
             config.num_hidden_layers, config.hidden_size, config.n_routed_experts, config.vocab_size,
             config.num_nextn_predict_layers, config.vision_config ? "vision" : "no vision");
  fmt::print("tensors  {}, {} bytes\n", WithThousands(summary.inventory.total.tensors),
             WithThousands(summary.inventory.total.bytes));
  fmt::print("files  {}, {} bytes ({}) in {:.1f} s: {} ... {}\n", summary.files.size(),
             WithThousands(summary.file_bytes), HumanBytes(summary.file_bytes), seconds,
             summary.files.front(), summary.files.back());
}

int MakeCheckpoint(MakeCheckpointFlags flags) {
  flags.options.dir = flags.dir;
  for (const SyntheticPreset preset : model::kSyntheticPresets)
    if (PresetName(preset) == flags.preset) flags.options.preset = preset;
  const int threads =
      flags.threads > 0 ? flags.threads : static_cast<int>(std::thread::hardware_concurrency());
  ThreadPool pool(std::max(1, threads));
  const auto start = std::chrono::steady_clock::now();
  const auto summary = model::WriteSyntheticCheckpoint(flags.options, pool);
  if (!summary.ok()) return ReportStatus(summary.error());
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  PrintSummary(flags, *summary, elapsed.count());
  return 0;
}

}  // namespace

void AddMakeCheckpointCommand(CLI::App& root, Invocation& invocation) {
  auto flags = std::make_shared<MakeCheckpointFlags>();
  CLI::App* command = root.add_subcommand(
      "make-checkpoint", "Write a synthetic checkpoint: random weights in the released format");
  command->footer(
      "tiny: a few MB, every mechanism. bench: about 1.5 GB, real matrices, few layers and experts.\n"
      "long: a few MB, for contexts of a million tokens. "
      "real-layer: about 3.4 GB, two layers with every real dimension. Same preset and seed, same bytes.");
  command->add_option("--preset", flags->preset, "tiny, bench, long or real-layer")
      ->required()
      ->check(CLI::IsMember(PresetNames()));
  command->add_option("--seed", flags->options.seed, "Seed of the weights")->capture_default_str();
  command->add_flag("--force", flags->options.overwrite,
                    "Replace the checkpoint in OUT; files that are not part of one stay");
  command->add_option("--threads", flags->threads, "Threads that make weights; 0: one a core")
      ->check(CLI::Range(0, 1024));
  command->add_option("OUT", flags->dir, "Directory to write into; made if it is missing")->required();
  command->callback([flags, &invocation] { invocation.run = [flags] { return MakeCheckpoint(*flags); }; });
}

}  // namespace millrace::app
