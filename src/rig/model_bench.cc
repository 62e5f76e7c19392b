#include "rig/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "kernels/peak_loops.h"
#include "model/catalogue.h"
#include "model/engram_hash.h"
#include "rig/bench_sequence.h"
#include "rig/busy_processes.h"
#include "rig/cold_files.h"
#include "rig/step_cost.h"

namespace millrace::rig {
namespace {

namespace fs = std::filesystem;

constexpr TurnPlan kFewLongRounds{.rounds = 3, .max_rounds = 3};

// Reads a byte of every page of the backbone's tensors but the n-gram tables, of which a run touches next to
// nothing. Returns their bytes.
uint64_t TouchWeights(const model::Checkpoint& checkpoint, Team& team) {
  constexpr size_t kPiece = 8 * kMiB;
  std::vector<std::span<const std::byte>> pieces;
  uint64_t bytes = 0;
  for (const model::TensorSpec& spec : model::BuildCatalogue(checkpoint.config())) {
    if (spec.component != model::Component::kBackbone || spec.kind == model::TensorKind::kEngramEmbed)
      continue;
    std::span<const std::byte> rest =
        checkpoint.Get(spec.kind, spec.is_scale, spec.layer.value_or(0), spec.expert.value_or(0)).bytes;
    bytes += rest.size();
    for (; !rest.empty(); rest = rest.subspan(std::min(kPiece, rest.size())))
      pieces.push_back(rest.first(std::min(kPiece, rest.size())));
  }
  std::atomic<unsigned> sum{0};
  team.pool().ParallelFor(pieces.size(), [&](size_t i, int) {
    unsigned local = 0;
    for (size_t at = 0; at < pieces[i].size(); at += 4096) local += std::to_integer<unsigned>(pieces[i][at]);
    sum += local;
  });
  return bytes;
}

// One checkpoint's forward pass under the clock.
class ModelBench {
 public:
  static Result<std::unique_ptr<ModelBench>> Create(const model::Checkpoint& checkpoint, KernelBench& bench,
                                                    const ModelBenchOptions& options,
                                                    FunctionRef<void(const BenchRow&)> on_row);

  Status Verify();
  void Run();

 private:
  using OnRow = FunctionRef<void(const BenchRow&)>;

  ModelBench(KernelBench& bench, const ModelBenchOptions& options, std::unique_ptr<model::Forward> forward,
             OnRow on_row)
      : bench_(bench), options_(options), forward_(std::move(forward)), on_row_(on_row) {}

  void Prefill();
  void Decode();
  void LateLayers();
  void BesideBusyProcesses();
  BenchRow Row(std::string name, std::string shape) const;
  int64_t RoundToUnits(int64_t tokens) const {
    const int64_t unit = BenchSequence::DepthUnit(forward_->plan());
    return (tokens + unit - 1) / unit * unit;
  }

  KernelBench& bench_;
  ModelBenchOptions options_;
  std::unique_ptr<model::Forward> forward_;
  OnRow on_row_;
  double prefill_tokens_s_ = 0;
};

Result<std::unique_ptr<ModelBench>> ModelBench::Create(const model::Checkpoint& checkpoint,
                                                       KernelBench& bench, const ModelBenchOptions& options,
                                                       OnRow on_row) {
  MILLRACE_ASSIGN_OR_RETURN(model::EngramHash hash,
                            model::EngramHash::ForCheckpoint(checkpoint.config(), checkpoint.dir()));
  MILLRACE_ASSIGN_OR_RETURN(
      std::unique_ptr<model::Forward> forward,
      model::Forward::Create(checkpoint, std::move(hash), bench.team.pool(), options.forward));
  return std::unique_ptr<ModelBench>(new ModelBench(bench, options, std::move(forward), on_row));
}

// A chunk must give the bits of its tokens alone.
Status ModelBench::Verify() {
  constexpr int64_t kTokens = 9;
  BenchSequence chunk(*forward_, kTokens, 1);
  BenchSequence alone(*forward_, kTokens, 1);
  chunk.Prefill(std::min(kTokens, options_.forward.max_batch_tokens));
  while (alone.length() < chunk.length()) alone.Decode();
  for (size_t i = 0; i < chunk.logits().size(); ++i) {
    const float a = chunk.logits()[i];
    const float b = alone.logits()[i];
    if (std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b)) continue;
    return Error(ErrorCode::kMismatch,
                 fmt::format("logit {} after {} tokens is {:.9g} in one batch and {:.9g} one by one; nothing "
                             "was timed",
                             i, chunk.length(), a, b));
  }
  return {};
}

BenchRow ModelBench::Row(std::string name, std::string shape) const {
  const bool fast = options_.forward.numerics == model::Numerics::kFast;
  return {.name = std::move(name),
          .shape = std::move(shape),
          .numerics = fast ? "fast" : "reference",
          .instruction_set = fast ? kernels::Bf16InstructionSet() : kernels::FloatInstructionSet(),
          .threads = bench_.team.size()};
}

void ModelBench::Prefill() {
  const int64_t n = options_.prefill_tokens;
  BenchSequence sequence(*forward_, n, 2);
  const PrefillWork work = CountPrefill(forward_->plan(), n, options_.forward.late_layers);
  const double operations = 2.0 * static_cast<double>(work.total());
  const Contestant contestants[] = {
      {.run = [&] { sequence.Prefill(n); }, .work = operations, .team = &bench_.team},
      bench_.limits.Floats(bench_.team)};
  BenchRow row = Row("prefill", fmt::format("{} tokens in batches of {}, {:.2f} GFLOP a token", n,
                                            std::min(n, options_.forward.max_batch_tokens),
                                            1e-9 * operations / static_cast<double>(n)));
  row.unit = "GFLOP/s";
  row.limit_name = "multiply-add peak";
  row.Take(TimeInTurn(contestants, kFewLongRounds), 1e9);
  row.tokens_per_s = row.value * 1e9 / operations * static_cast<double>(n);
  prefill_tokens_s_ = row.tokens_per_s;
  on_row_(row);
}

void ModelBench::Decode() {
  const int64_t shallow = RoundToUnits(kShortDepth);
  const int64_t deep = RoundToUnits(std::max(options_.depth, shallow));
  const int64_t margin = options_.decode_tokens + 1;  // one warms up
  std::vector<BenchSequence> sequences;
  sequences.reserve(2);
  std::vector<Contestant> contestants;
  for (const int64_t depth : {shallow, deep}) {
    if (!sequences.empty() && depth == shallow) continue;
    BenchSequence& sequence = sequences.emplace_back(*forward_, depth + margin, 3);
    sequence.Prefill(shallow);
    sequence.RepeatTo(depth);
    contestants.push_back({.run = [&sequence] { sequence.Decode(); }, .work = 1, .team = &bench_.team});
  }
  // A slice is one token; as much of the limit takes about as long.
  contestants.push_back(bench_.limits.Read(bench_.team, 8));
  const int rounds = static_cast<int>(options_.decode_tokens);
  const Contest contest =
      TimeInTurn(contestants, {.slice_s = 0, .rounds = rounds, .max_rounds = rounds, .max_s = 1e9});
  const auto bytes = static_cast<double>(DecodeBytes(forward_->plan()).total());
  for (size_t i = 0; i < sequences.size(); ++i) {
    BenchRow row =
        Row("decode", fmt::format("{} tokens at depth {}, {} of weights a token", options_.decode_tokens,
                                  i == 0 ? shallow : deep, HumanBytes(static_cast<uint64_t>(bytes))));
    row.unit = "GB/s";
    row.limit_name = "read bandwidth";
    row.Take(contest, 1e9, i, sequences.size());
    row.tokens_per_s = contest.rates[i];
    row.value *= bytes;
    row.ratio *= bytes;
    on_row_(row);
  }
  BenchRow row = Row("prefill-decode", fmt::format("prompt of {} tokens, decode at depth {}",
                                                   options_.prefill_tokens, shallow));
  row.unit = "tokens/s";
  row.limit_name = "decode";
  row.Take(contest, 1, 0, 0);
  row.value = prefill_tokens_s_;
  row.ratio = row.value / row.limit;
  on_row_(row);
  if (sequences.size() == 1) return;
  row = Row("decode-depth", fmt::format("depth {} over {}", deep, shallow));
  row.unit = "tokens/s";
  row.limit_name = fmt::format("at depth {}", shallow);
  row.Take(contest, 1, 1, 0);
  on_row_(row);
}

void ModelBench::LateLayers() {
  const int64_t shallow = RoundToUnits(kShortDepth);
  const int64_t deep = RoundToUnits(std::max(options_.depth, shallow));
  const int64_t n = options_.forward.max_batch_tokens;
  BenchSequence sequence(*forward_, deep + n, 4);
  sequence.Prefill(shallow);
  sequence.RepeatTo(deep);
  const int64_t far_away = deep + (int64_t{1} << 40);
  const auto read = [&](int64_t results_from) {
    return Contestant{.run = [&sequence, n, results_from] { sequence.ReadInTheMiddle(n, results_from); },
                      .work = static_cast<double>(n),
                      .team = &bench_.team};
  };
  const Contestant contestants[] = {read(far_away), read(0)};
  BenchRow row = Row("late-layers", fmt::format("{} tokens at depth {} of a long prompt", n, deep));
  row.unit = "tokens/s";
  row.limit_name = "with late layers for all tokens";
  row.Take(TimeInTurn(contestants, kFewLongRounds), 1);
  on_row_(row);
}

void ModelBench::BesideBusyProcesses() {
  constexpr int64_t kDecodeTokens = 4;
  constexpr TurnPlan kPlan{.slice_s = 0, .rounds = 5, .max_rounds = 5, .max_s = 1e9, .waits = true};
  const BusyProcesses neighbours(options_.busy_neighbours);
  const int processors = DescribeMachine().processors;
  const double fair_share =
      std::min(1.0, static_cast<double>(processors) / (bench_.team.size() + neighbours.count()));
  const auto compare = [&](const char* name, std::string shape, int64_t tokens, const auto& run) {
    const Contestant contestants[] = {
        {.run = run,
         .work = static_cast<double>(tokens),
         .team = &bench_.team,
         .prepare = [&] { neighbours.Run(); }},
        {.run = run, .work = fair_share * static_cast<double>(tokens), .team = &bench_.team, .prepare = [&] {
           neighbours.Stop();
         }}};
    BenchRow row = Row(name, std::move(shape));
    row.unit = "tokens/s";
    row.limit_name = fmt::format("{:.2f} of the rate alone", fair_share);
    row.Take(TimeInTurn(contestants, kPlan), 1);
    neighbours.Stop();
    on_row_(row);
  };
  const int64_t n = std::min<int64_t>(32, options_.prefill_tokens);
  // Alone and beside, each once to warm up.
  BenchSequence sequence(*forward_, n + 2 * (kPlan.rounds + 1) * kDecodeTokens, 5);
  sequence.Prefill(n);
  compare("busy-decode",
          fmt::format("{} tokens, {} processes spin beside it", kDecodeTokens, neighbours.count()),
          kDecodeTokens, [&] {
            for (int64_t i = 0; i < kDecodeTokens; ++i) sequence.Decode();
          });
  compare("busy-prefill", fmt::format("{} tokens, {} processes spin beside it", n, neighbours.count()), n,
          [&] { sequence.Prefill(n); });
}

void ModelBench::Run() {
  Prefill();
  Decode();
  if (options_.forward.late_layers == model::LateLayers::kNeeded) LateLayers();
  if (options_.busy_neighbours > 0) BesideBusyProcesses();
}

Status CheckOptions(const model::Checkpoint& checkpoint, const ModelBenchOptions& options) {
  const int64_t longest =
      std::max(options.prefill_tokens, std::max(options.depth, kShortDepth) + options.decode_tokens +
                                           options.forward.max_batch_tokens);
  const int64_t limit = checkpoint.config().max_position_embeddings;
  if (longest <= limit) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("these options reach position {}, the checkpoint's max_position_embeddings is {}; "
                           "choose fewer tokens or a smaller depth",
                           longest, limit));
}

}  // namespace

Status BenchModel(const model::Checkpoint& checkpoint, KernelBench& bench, const ModelBenchOptions& options,
                  FunctionRef<void(const BenchRow&)> on_row) {
  MILLRACE_RETURN_IF_ERROR(CheckOptions(checkpoint, options));
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelBench> model,
                            ModelBench::Create(checkpoint, bench, options, on_row));
  TouchWeights(checkpoint, bench.team);
  MILLRACE_RETURN_IF_ERROR(model->Verify());
  model->Run();
  return {};
}

Result<BenchRow> BenchLoad(const fs::path& dir, KernelBench& bench) {
  std::vector<fs::path> shards;
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, failure)) {
    if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
  }
  if (failure) return Error(ErrorCode::kIo, fmt::format("{}: {}", dir.string(), failure.message()));
  std::ranges::sort(shards);
  const ColdFiles files(shards);
  BenchRow row{.name = "load",
               .shape = HumanBytes(files.bytes()),
               .threads = bench.team.size(),
               .unit = "GB/s",
               .limit_name = "raw sequential read"};
  Status status = files.Forget();
  if (!status.ok()) {
    row.skipped = status.error().message();
    return row;
  }
  const auto keep_first = [&status](const auto& result) {
    if (status.ok() && !result.ok()) status = result.error();
  };
  const auto forget = [&] { keep_first(files.Forget()); };
  const auto load = [&] {
    const Result<model::Checkpoint> checkpoint = model::Checkpoint::Open(dir);
    keep_first(checkpoint);
    if (checkpoint.ok()) TouchWeights(*checkpoint, bench.team);
  };
  const auto bytes = static_cast<double>(files.bytes());
  const Contestant contestants[] = {
      {.run = load, .work = bytes, .team = &bench.team, .prepare = forget},
      {.run = [&] { keep_first(files.ReadAll()); }, .work = bytes, .team = &bench.team, .prepare = forget}};
  TurnPlan plan = kFewLongRounds;
  plan.slice_s = 0;
  plan.waits = true;
  row.Take(TimeInTurn(contestants, plan), 1e9);
  MILLRACE_RETURN_IF_ERROR(std::move(status));
  return row;
}

}  // namespace millrace::rig
