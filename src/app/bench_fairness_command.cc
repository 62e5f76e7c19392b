#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "app/bench_flags.h"
#include "app/commands.h"
#include "app/fairness_run.h"
#include "app/forward_flags.h"
#include "app/number_check.h"
#include "rig/machine_limits.h"

namespace millrace::app {
namespace {

struct BenchFairnessFlags {
  std::string checkpoint;
  FairnessOptions options;
  double max_inter_token_ms = engine::PaceOptions().max_gap_seconds * 1e3;
  BenchFlags common;
};

std::string HeadText() {
  return fmt::format("{:<18} {:>9} {:>11} {:>9} {:>6} {:>9} {:>9} {:>13} {:>13}\n", "schedule", "solo t/s",
                     "all decode", "slowest", "share", "gap s", "read s", "prompt t/s", "streams t/s");
}

std::string CaseText(const FairnessCase& row) {
  return fmt::format("{:<18} {:>9.2f} {:>11.2f} {:>9.2f} {:>6.2f} {:>9.3f} {:>9.1f} {:>13.1f} {:>13.1f}\n",
                     row.name, row.solo_tokens_per_s, row.undisturbed_tokens_per_s, row.slowest_tokens_per_s,
                     row.share(), row.longest_gap_s, row.reading_s, row.prompt_tokens_per_s(),
                     row.stream_tokens_per_s);
}

boost::json::object CaseJson(const FairnessCase& row) {
  return {{"schedule", row.name},
          {"solo_tokens_s", row.solo_tokens_per_s},
          {"undisturbed_tokens_s", row.undisturbed_tokens_per_s},
          {"slowest_tokens_s", row.slowest_tokens_per_s},
          {"share", row.share()},
          {"longest_gap_s", row.longest_gap_s},
          {"reading_s", row.reading_s},
          {"prompt_tokens", row.prompt_tokens},
          {"prompt_tokens_s", row.prompt_tokens_per_s()},
          {"first_token_s", row.first_token_s},
          {"stream_tokens_s", row.stream_tokens_per_s}};
}

// What the three schedules make of the same work; 1: nothing is lost.
struct Comparison {
  double fair_over_fcfs = 0;      // prompt tokens a second, both paced: what the order of prompts costs
  double paced_over_unpaced = 0;  // prompt tokens a second: what the streams' share costs prompts
  // The time for prompts unpaced and for what the streams missed meanwhile after them, over the time paced.
  double same_work = 0;
};

// `rows` in the order of RunFairness: fair, fcfs, fcfs without pace.
Comparison Compare(const std::vector<FairnessCase>& rows, int streams) {
  const FairnessCase& fair = rows[0];
  const FairnessCase& unpaced = rows[2];
  const double unpaced_s = fair.prompt_tokens / unpaced.prompt_tokens_per_s();
  const double missed = fair.stream_tokens_per_s * fair.reading_s - unpaced.stream_tokens_per_s * unpaced_s;
  return {fair.prompt_tokens_per_s() / rows[1].prompt_tokens_per_s(),
          fair.prompt_tokens_per_s() / unpaced.prompt_tokens_per_s(),
          (unpaced_s + missed / (streams * fair.undisturbed_tokens_per_s)) / fair.reading_s};
}

Status BenchFairness(const BenchFairnessFlags& flags) {
  FairnessOptions options = flags.options;
  options.threads = ApplyBenchFlags(flags.common);
  options.pace.max_gap_seconds = flags.max_inter_token_ms / 1e3;
  const rig::MachineDescription machine = rig::DescribeMachine();
  const bool json = flags.common.json;
  if (!json) {
    fmt::print("checkpoint {}\nmachine {}, {} processors; {} threads; seconds {}\n", flags.checkpoint,
               machine.processor, machine.processors, options.threads,
               options.by_processor_time ? "of processor time" : "of the clock");
    fmt::print(
        "{} streams decode, {} prompts of {} tokens arrive{}; gap at most {:.0f} ms, share at least {}\n{}",
        options.streams, options.prompts, options.prompt_tokens,
        options.longest_reading_s > 0 ? fmt::format(", cut off after {:.0f} s", options.longest_reading_s)
                                      : "",
        flags.max_inter_token_ms, options.pace.min_decode_share, HeadText());
    std::fflush(stdout);
  }
  boost::json::array cases, shorts;
  std::vector<FairnessCase> rows;
  const auto on_case = [&](const FairnessCase& row) {
    rows.push_back(row);
    cases.push_back(CaseJson(row));
    if (json) return;
    fmt::print("{}", CaseText(row));
    std::fflush(stdout);
  };
  const auto on_short = [&](const ShortBehindHuge& row) {
    shorts.push_back({{"behind_tokens", row.huge_tokens}, {"first_token_s", row.first_token_s}});
    if (json) return;
    fmt::print("a prompt of {} tokens behind one of {}: first token after {:.2f} s\n",
               options.short_prompt_tokens, row.huge_tokens, row.first_token_s);
    std::fflush(stdout);
  };
  MILLRACE_RETURN_IF_ERROR(RunFairness(flags.checkpoint, options, on_case, on_short));
  const Comparison compared = Compare(rows, options.streams);
  if (json) {
    const boost::json::object object{{"checkpoint", flags.checkpoint},
                                     {"by_processor_time", options.by_processor_time},
                                     {"cases", cases},
                                     {"short_prompts", shorts},
                                     {"prompt_rate_fair_over_fcfs", compared.fair_over_fcfs},
                                     {"prompt_rate_paced_over_not", compared.paced_over_unpaced},
                                     {"same_work_not_paced_over_paced", compared.same_work}};
    fmt::print("{}\n", boost::json::serialize(object));
    return {};
  }
  fmt::print(
      "prompt tokens a second: fair over fcfs {:.3f}, paced over not paced {:.3f}\n"
      "time for the same tokens of both, prompts first without pace over paced: {:.3f}\n",
      compared.fair_over_fcfs, compared.paced_over_unpaced, compared.same_work);
  return {};
}

}  // namespace

void AddBenchFairnessCommand(CLI::App& bench, Invocation& invocation) {
  auto flags = std::make_shared<BenchFairnessFlags>();
  CLI::App* command = bench.add_subcommand(
      "fairness", "Streams decode while long prompts arrive: what each schedule leaves them. Takes minutes");
  const CLI::Range tokens(int64_t{1}, int64_t{1} << 22);
  FairnessOptions& options = flags->options;
  command->add_option("checkpoint", flags->checkpoint, "Checkpoint directory")->required();
  command->add_option("--streams", options.streams, "Sequences that decode")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--prompts", options.prompts, "Prompts that arrive together")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--prompt-tokens", options.prompt_tokens, "Tokens of each")
      ->check(tokens)
      ->capture_default_str();
  command
      ->add_option("--seconds", options.longest_reading_s,
                   "Cut the prompts off after so long and measure what was read; 0: read them to their ends. "
                   "What is late in a prompt takes longer, and fcfs meets that sooner")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command
      ->add_option("--huge-prompt-tokens", options.huge_prompt_tokens,
                   "Tokens of the prompt that a short one comes behind; 0: leave that out")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 22))
      ->capture_default_str();
  command->add_option("--short-prompt-tokens", options.short_prompt_tokens, "Tokens of the short one")
      ->check(tokens)
      ->capture_default_str();
  command->add_option("--batch", options.chunk_tokens, "Most prompt tokens of one step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 15))
      ->capture_default_str();
  command->add_option("--max-inter-token-ms", flags->max_inter_token_ms, "As of serve")
      ->check(Between(0.0, 1e7))
      ->capture_default_str();
  command->add_option("--min-decode-share", options.pace.min_decode_share, "As of serve")
      ->check(Between(0.0, 1.0))
      ->capture_default_str();
  command->add_flag(
      "--processor-time", options.by_processor_time,
      "Count seconds of the processors given instead of the clock's: for machines that others use");
  AddNumericsFlag(*command, options.numerics);
  AddBenchFlags(*command, flags->common);
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportRun(BenchFairness(*flags)); }; });
}

}  // namespace millrace::app
