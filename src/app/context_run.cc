#include "app/context_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "base/ledger.h"
#include "base/process_memory.h"
#include "base/seconds.h"
#include "base/units.h"
#include "kernels/peak_loops.h"
#include "model/checkpoint.h"
#include "model/engram_hash.h"
#include "rig/time_in_turn.h"

namespace millrace::app {
namespace {

// A sequence of random tokens and the engine's side of it.
class Prompt {
 public:
  // `tokens` begin with the prompt of `prompt_tokens`, that `sequence` was begun with; the others follow it.
  Prompt(engine::StepModel& model, std::unique_ptr<engine::StepSequence> sequence,
         std::vector<TokenId> tokens, int64_t prompt_tokens)
      : model_(model),
        sequence_(std::move(sequence)),
        tokens_(std::move(tokens)),
        prompt_tokens_(prompt_tokens),
        logits_(static_cast<size_t>(model.vocab_size())) {}

  int64_t length() const { return length_; }

  // Appends `n` tokens in one step.
  void Read(int64_t n) {
    const auto tokens =
        std::span<const TokenId>(tokens_).subspan(static_cast<size_t>(length_), static_cast<size_t>(n));
    length_ += n;
    const bool wants_logits = length_ >= prompt_tokens_;
    const engine::StepItem item{.sequence = sequence_.get(), .tokens = tokens, .wants_logits = wants_logits};
    model_.Step(std::span(&item, 1), wants_logits ? std::span<float>(logits_) : std::span<float>());
  }

 private:
  engine::StepModel& model_;
  std::unique_ptr<engine::StepSequence> sequence_;
  std::vector<TokenId> tokens_;
  int64_t prompt_tokens_;
  std::vector<float> logits_;
  int64_t length_ = 0;
};

// The most memory that the process has held beyond what it held when this was made.
class GrowthMeter {
 public:
  void Look() {
    const uint64_t now = ReadProcessMemory().anonymous_bytes;
    grown_ = std::max(grown_, now - std::min(now, before_));
  }
  uint64_t grown_bytes() const { return grown_; }

 private:
  uint64_t before_ = ReadProcessMemory().anonymous_bytes;
  uint64_t grown_ = 0;
};

class LongContext {
 public:
  static Result<std::unique_ptr<LongContext>> Create(const std::filesystem::path& dir, rig::Team& team,
                                                     const ContextRunOptions& options);

  void ReadPrompt(FunctionRef<void(const ContextProgress&)> on_progress);
  ContextRun Compare();

 private:
  LongContext(model::Checkpoint checkpoint, rig::Team& team, const ContextRunOptions& options)
      : checkpoint_(std::move(checkpoint)), team_(team), options_(options) {}

  // Tokens of a sequence whose prompt is `prompt` tokens long.
  int64_t Total(int64_t prompt) const { return prompt + options_.decode_tokens + 1; }
  int64_t ShortPrompt() const { return kShortContext + kTimedChunks * options_.chunk_tokens; }
  Status MakeModel();
  Result<Prompt> MakePrompt(int64_t tokens, uint64_t seed);
  rig::BenchRow InTurn(std::string name, int64_t tokens, int rounds);

  GrowthMeter growth_;
  model::Checkpoint checkpoint_;
  rig::Team& team_;
  const ContextRunOptions options_;
  MemoryLedger ledger_;
  std::unique_ptr<engine::ModelStepper> model_;
  std::vector<Prompt> prompts_;  // the short one, the long one
};

Result<std::unique_ptr<LongContext>> LongContext::Create(const std::filesystem::path& dir, rig::Team& team,
                                                         const ContextRunOptions& options) {
  const int64_t timed = kTimedChunks * options.chunk_tokens;
  if (options.prefill_tokens < kShortContext + timed) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the prompt is {} tokens; with chunks of {} it must be at least {}",
                             options.prefill_tokens, options.chunk_tokens, kShortContext + timed));
  }
  MILLRACE_ASSIGN_OR_RETURN(model::Checkpoint checkpoint, model::Checkpoint::Open(dir));
  std::unique_ptr<LongContext> run(new LongContext(std::move(checkpoint), team, options));
  MILLRACE_RETURN_IF_ERROR(run->MakeModel());
  MILLRACE_ASSIGN_OR_RETURN(Prompt brief, run->MakePrompt(run->ShortPrompt(), 1));
  MILLRACE_ASSIGN_OR_RETURN(Prompt whole, run->MakePrompt(options.prefill_tokens, 2));
  run->prompts_.push_back(std::move(brief));
  run->prompts_.push_back(std::move(whole));
  return run;
}

Status LongContext::MakeModel() {
  const auto whole_pages = [](int64_t tokens) {
    return static_cast<int64_t>(RoundUp(static_cast<uint64_t>(tokens), model::kPageTokens));
  };
  const engine::StepperOptions stepper{
      .max_model_len = Total(options_.prefill_tokens),
      .max_num_seqs = 2,
      .max_batch_tokens = options_.chunk_tokens,
      .kv_tokens = whole_pages(Total(options_.prefill_tokens)) + whole_pages(Total(ShortPrompt())),
      .late_layers = options_.late_layers,
      .numerics = options_.numerics,
      .prefix_caching = false,
      .prefix_tails = 0};
  MILLRACE_ASSIGN_OR_RETURN(model::EngramHash hash,
                            model::EngramHash::ForCheckpoint(checkpoint_.config(), checkpoint_.dir()));
  MILLRACE_ASSIGN_OR_RETURN(
      model_, engine::ModelStepper::Create(checkpoint_, std::move(hash), team_.pool(), stepper, &ledger_));
  return {};
}

Result<Prompt> LongContext::MakePrompt(int64_t tokens, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> all(static_cast<size_t>(Total(tokens)));
  for (TokenId& token : all)
    token = static_cast<TokenId>(random() % static_cast<uint64_t>(model_->vocab_size()));
  MILLRACE_ASSIGN_OR_RETURN(engine::StartedSequence started,
                            model_->NewSequence(std::span(all).first(static_cast<size_t>(tokens))));
  MILLRACE_RETURN_IF_ERROR(model_->Reserve(*started.sequence, Total(tokens)));
  return Prompt(*model_, std::move(started.sequence), std::move(all), tokens);
}

void LongContext::ReadPrompt(FunctionRef<void(const ContextProgress&)> on_progress) {
  using Clock = std::chrono::steady_clock;
  Prompt& brief = prompts_.front();
  while (brief.length() < kShortContext)
    brief.Read(std::min(options_.chunk_tokens, kShortContext - brief.length()));
  Prompt& whole = prompts_.back();
  const int64_t end = options_.prefill_tokens - kTimedChunks * options_.chunk_tokens;
  Clock::time_point last = Clock::now();
  int64_t last_depth = 0;
  while (whole.length() < end) {
    const int64_t before = whole.length();
    whole.Read(std::min(options_.chunk_tokens, end - before));
    growth_.Look();
    const auto octave = [](int64_t depth) { return std::bit_width(static_cast<uint64_t>(depth)); };
    if (octave(whole.length()) == octave(before) && whole.length() < end) continue;
    const Clock::time_point now = Clock::now();
    const double seconds = Seconds(now - last);
    on_progress({.depth = whole.length(),
                 .tokens_per_s = static_cast<double>(whole.length() - last_depth) / seconds});
    last = now;
    last_depth = whole.length();
  }
}

// Both prompts read `tokens` at a time, once unclocked and `rounds` times under the clock.
rig::BenchRow LongContext::InTurn(std::string name, int64_t tokens, int rounds) {
  std::vector<rig::Contestant> contestants;
  const int64_t brief_depth = prompts_.front().length();
  const int64_t depth = prompts_.back().length();
  for (Prompt& prompt : prompts_) {
    contestants.push_back({.run = [&prompt, tokens] { prompt.Read(tokens); },
                           .work = static_cast<double>(tokens),
                           .team = &team_});
  }
  const rig::Contest contest = rig::TimeInTurn(
      contestants, {.slice_s = 0, .rounds = rounds, .max_rounds = rounds, .max_s = 1e9, .waits = false});
  growth_.Look();
  const bool fast = options_.numerics == model::Numerics::kFast;
  rig::BenchRow row{
      .name = std::move(name),
      .shape = fmt::format("{} tokens at a time at depth {} over {}", tokens, depth, brief_depth),
      .numerics = fast ? "fast" : "reference",
      .instruction_set = fast ? kernels::Bf16InstructionSet() : kernels::FloatInstructionSet(),
      .threads = team_.size(),
      .unit = "tokens/s",
      .limit_name = fmt::format("at depth {}", brief_depth)};
  row.Take(contest, 1, 1, 0);
  row.tokens_per_s = row.value;
  return row;
}

ContextRun LongContext::Compare() {
  ContextRun run;
  run.rows.push_back(InTurn("prefill-context", options_.chunk_tokens, static_cast<int>(kTimedChunks) - 1));
  run.rows.push_back(InTurn("decode-context", 1, static_cast<int>(options_.decode_tokens)));
  for (const MemoryAccount* account : ledger_.accounts()) {
    run.memory.planned_bytes += account->planned_bytes();
    run.memory.held_bytes += account->peak_bytes();
  }
  run.memory.grown_bytes = growth_.grown_bytes();
  return run;
}

}  // namespace

Result<ContextRun> RunContext(const std::filesystem::path& checkpoint, rig::Team& team,
                              const ContextRunOptions& options,
                              FunctionRef<void(const ContextProgress&)> on_progress) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<LongContext> run,
                            LongContext::Create(checkpoint, team, options));
  run->ReadPrompt(on_progress);
  return run->Compare();
}

}  // namespace millrace::app
