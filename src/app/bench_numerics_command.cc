#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/divergence.h"
#include "app/evaluator.h"
#include "engine/load.h"

namespace millrace::app {
namespace {

struct NumericsFlags {
  std::string checkpoint;
  int64_t prompts = 4;
  int64_t length = 128;
  uint64_t seed = 1;
  int threads = 0;
  bool json = false;
};

// Ids drawn evenly from the vocabulary: a checkpoint of random weights knows no better text.
std::vector<TokenId> RandomIds(std::mt19937_64& random, int64_t n, int64_t vocab_size) {
  std::vector<TokenId> ids(static_cast<size_t>(n));
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<uint64_t>(vocab_size));
  return ids;
}

void Print(const NumericsFlags& flags, const Divergence& found) {
  if (flags.json) {
    fmt::print("{}\n",
               boost::json::serialize(boost::json::object{{"checkpoint", flags.checkpoint},
                                                          {"positions", found.positions()},
                                                          {"kl_mean", found.MeanKl()},
                                                          {"kl_worst", found.worst_kl()},
                                                          {"top1_agreement", found.Top1Agreement()}}));
    return;
  }
  fmt::print(
      "fast against reference over {} positions: KL mean {:.3g}, worst {:.3g} nats; most probable token the "
      "same at "
      "{:.2f}%\n",
      found.positions(), found.MeanKl(), found.worst_kl(), 100 * found.Top1Agreement());
}

Status BenchNumerics(const NumericsFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, model::Checkpoint::Open(flags.checkpoint));
  const int64_t limit = checkpoint.config().max_position_embeddings;
  if (flags.length > limit) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--length is {}, the checkpoint's max_position_embeddings is {}", flags.length, limit));
  }
  ThreadPool pool(flags.threads == 0 ? engine::UsableProcessors() : flags.threads);
  model::ForwardOptions options{.max_batch_tokens = std::min<int64_t>(flags.length, 512),
                                .max_batch_items = 1};
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Evaluator> reference,
                            Evaluator::Create(checkpoint, pool, options, flags.length));
  options.numerics = model::Numerics::kFast;
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Evaluator> fast,
                            Evaluator::Create(checkpoint, pool, options, flags.length));
  std::mt19937_64 random(flags.seed);
  Divergence divergence(checkpoint.config().vocab_size);
  for (int64_t p = 0; p < flags.prompts; ++p) {
    const std::vector<TokenId> ids = RandomIds(random, flags.length, checkpoint.config().vocab_size);
    divergence.Add(reference->Logits(ids), fast->Logits(ids));
  }
  Print(flags, divergence);
  return {};
}

}  // namespace

void AddBenchNumericsCommand(CLI::App& bench, Invocation& invocation) {
  auto flags = std::make_shared<NumericsFlags>();
  CLI::App* command = bench.add_subcommand(
      "numerics", "How far --numerics fast moves the next-token distributions of reference");
  command->add_option("checkpoint", flags->checkpoint, "Checkpoint directory")->required();
  command->add_option("--prompts", flags->prompts, "Prompts of random tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--length", flags->length, "Tokens of each")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16))
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "Of the tokens")->capture_default_str();
  command->add_option("--threads", flags->threads, "Threads, 0 for one a processor")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--json", flags->json, "One JSON object instead of a line");
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportRun(BenchNumerics(*flags)); }; });
}

}  // namespace millrace::app
