#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/load_flags.h"
#include "app/number_check.h"
#include "loadgen/load_report.h"

namespace millrace::app {
namespace {

enum class LoadKind : uint8_t { kRandom, kConversations, kFairness, kNeedles };

struct BenchServeFlags {
  LoadFlags common;
  std::string dataset = "random";
  int64_t num_prompts = 100;
  double request_rate = INFINITY;
  int max_concurrency = 0;
  std::optional<int64_t> input_tokens;  // without one, each load's own
  std::optional<int64_t> output_tokens;
  double range_ratio = 0;
  loadgen::ConversationsOptions conversations{.conversations = 0};
  loadgen::FairnessOptions fairness;
  loadgen::NeedlesOptions needles{.needles = 0, .depths = {10, 50, 90}};  // depths in percent
};

constexpr int kDefaultConcurrency = 8;  // of a closed loop
constexpr int64_t kMaxTokens = int64_t{1} << 24;
constexpr int kMaxStreams = 100'000;

void AddRandomFlags(CLI::App& command, BenchServeFlags& flags) {
  command.add_option("--dataset-name", flags.dataset, "What prompts are made of")
      ->check(CLI::IsMember({"random"}))
      ->capture_default_str();
  command.add_option("--num-prompts", flags.num_prompts, "Requests")
      ->check(CLI::Range(int64_t{1}, int64_t{100'000'000}))
      ->capture_default_str();
  command
      .add_option("--request-rate", flags.request_rate,
                  "Open loop: arrivals a second, a Poisson process; inf: closed loop")
      ->check(Between(1e-6, INFINITY))
      ->capture_default_str();
  command
      .add_option(
          "--max-concurrency", flags.max_concurrency,
          "Requests at once; 0: 8 in a closed loop, no limit in an open one and for conversations, 1 for "
          "needles")
      ->check(CLI::Range(0, kMaxStreams))
      ->capture_default_str();
  command
      .add_option("--input-len,--random-input-len,--random-input", flags.input_tokens,
                  "Tokens of a prompt (1024; with --needles 3600) or of a conversation's question (256)")
      ->check(CLI::Range(int64_t{1}, kMaxTokens));
  command
      .add_option("--output-len,--random-output-len,--random-output", flags.output_tokens,
                  "Most tokens of an answer (128; with --needles 32)")
      ->check(CLI::Range(int64_t{1}, kMaxTokens));
  command
      .add_option("--range-ratio,--random-range-ratio", flags.range_ratio,
                  "Lengths vary evenly by this share around those given")
      ->check(Between(0.0, 1.0))
      ->capture_default_str();
}

CLI::Option* AddConversationFlags(CLI::App& command, loadgen::ConversationsOptions& options) {
  const auto whole = CLI::Range(1, kMaxStreams);
  CLI::Option* const kind =
      command.add_option("--conversations", options.conversations, "Conversations side by side")
          ->check(whole);
  command.add_option("--turns", options.turns, "Questions of each")->check(whole)->capture_default_str();
  command.add_option("--system-len", options.system_tokens, "Tokens of the system prompt that all share")
      ->check(CLI::Range(int64_t{1}, kMaxTokens))
      ->capture_default_str();
  command.add_option("--think-time", options.think_s, "Seconds between an answer and the next question")
      ->check(Between(0.0, 86'400.0))
      ->capture_default_str();
  return kind;
}

CLI::Option* AddFairnessFlags(CLI::App& command, loadgen::FairnessOptions& options) {
  const auto tokens = CLI::Range(int64_t{1}, kMaxTokens);
  CLI::Option* const kind =
      command
          .add_option(
              "--decode-streams", options.decode_streams,
              "Streams that decode while long prompts arrive; 0: only the prompts. The server has to serve "
              "streams + long prompts + 1 sequences at once (millrace: --max-num-seqs 13 for 4 and 8)")
          ->check(CLI::Range(0, kMaxStreams));
  command.add_option("--long-prompts", options.long_prompts, "Long prompts, all at once")
      ->check(CLI::Range(1, kMaxStreams))
      ->capture_default_str();
  command.add_option("--long-input-len", options.long_input_tokens, "Tokens of each")
      ->check(tokens)
      ->capture_default_str();
  command
      .add_option("--short-input-len", options.short_input_tokens, "Tokens of the prompt sent behind them")
      ->check(tokens)
      ->capture_default_str();
  command.add_option("--decode-output-len", options.decode_output_tokens, "Tokens of an answer of a stream")
      ->check(tokens)
      ->capture_default_str();
  command
      .add_option("--solo-tokens", options.solo_tokens, "Tokens that a stream's rate alone is measured over")
      ->check(CLI::Range(int64_t{2}, kMaxTokens))
      ->capture_default_str();
  return kind;
}

CLI::Option* AddNeedleFlags(CLI::App& command, loadgen::NeedlesOptions& options) {
  CLI::Option* const kind = command
                                .add_option("--needles", options.needles,
                                            "Prompts of --input-len at each depth, with a fact to find")
                                ->check(CLI::Range(1, kMaxStreams));
  command.add_option("--needle-depths", options.depths, "Where the facts stand, in percent")
      ->delimiter(',')
      ->check(Between(0.0, 100.0))
      ->capture_default_str();
  return kind;
}

// A load's figures in both forms, and whether there are any.
struct Report {
  std::string text;
  boost::json::object json;
  int64_t succeeded = 0;
};

template <typename LoadResult>
Report ToReport(const LoadResult& result) {
  return {loadgen::Text(result), loadgen::Json(result), result.summary.succeeded};
}

Result<Report> RunLoad(LoadKind kind, const BenchServeFlags& flags, loadgen::LoadSession& session) {
  switch (kind) {
    case LoadKind::kRandom: {
      loadgen::RandomLoadOptions options{.num_prompts = flags.num_prompts,
                                         .request_rate = flags.request_rate,
                                         .max_concurrency = flags.max_concurrency,
                                         .range_ratio = flags.range_ratio,
                                         .arrival_seed = flags.common.seed};
      options.input_tokens = flags.input_tokens.value_or(options.input_tokens);
      options.output_tokens = flags.output_tokens.value_or(options.output_tokens);
      if (options.max_concurrency == 0 && std::isinf(options.request_rate))
        options.max_concurrency = kDefaultConcurrency;
      return ToReport(RunRandomLoad(session, options));
    }
    case LoadKind::kConversations: {
      loadgen::ConversationsOptions options = flags.conversations;
      options.max_concurrency = flags.max_concurrency;
      options.input_tokens = flags.input_tokens.value_or(options.input_tokens);
      options.output_tokens = flags.output_tokens.value_or(options.output_tokens);
      return ToReport(RunConversations(session, options));
    }
    case LoadKind::kFairness: {
      MILLRACE_ASSIGN_OR_RETURN(const loadgen::FairnessResult result, RunFairness(session, flags.fairness));
      return ToReport(result);
    }
    case LoadKind::kNeedles: {
      loadgen::NeedlesOptions options = flags.needles;
      for (double& depth : options.depths) depth /= 100;
      options.input_tokens = flags.input_tokens.value_or(options.input_tokens);
      options.output_tokens = flags.output_tokens.value_or(options.output_tokens);
      options.max_concurrency = std::max(1, flags.max_concurrency);
      return ToReport(RunNeedles(session, options));
    }
  }
  return Error(ErrorCode::kInvalidArgument, "no such load");
}

constexpr const char* KindName(LoadKind kind) {
  switch (kind) {
    case LoadKind::kRandom:
      return "random prompts";
    case LoadKind::kConversations:
      return "conversations";
    case LoadKind::kFairness:
      return "fairness";
    case LoadKind::kNeedles:
      return "needles";
  }
  return "";
}

Status BenchServe(LoadKind kind, const BenchServeFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(loadgen::LoadSessionOptions options,
                            ToSessionOptions(flags.common, ProcessEnvironment()));
  MILLRACE_ASSIGN_OR_RETURN(loadgen::LoadSession session, loadgen::LoadSession::Open(std::move(options)));
  const std::string url = session.client.http().options().url.ToString();
  const std::string& model = session.client.options().model;
  if (!flags.common.json) {
    fmt::print("{}, model {}, {}; a word has {:.2f} tokens\n", url, model, KindName(kind),
               session.text.rate().tokens_per_word);
    std::fflush(stdout);
  }
  MILLRACE_ASSIGN_OR_RETURN(Report report, RunLoad(kind, flags, session));
  if (flags.common.json) {
    report.json["url"] = url;
    report.json["model_id"] = model;
    report.json["load"] = KindName(kind);
    report.json["tokens_per_word"] = session.text.rate().tokens_per_word;
    report.json["seed"] = flags.common.seed;
    fmt::print("{}\n", boost::json::serialize(report.json));
  } else {
    fmt::print("{}", report.text);
  }
  std::fflush(stdout);
  if (report.succeeded == 0)
    return Error(ErrorCode::kUnavailable, fmt::format("no request to {} succeeded", url));
  return {};
}

}  // namespace

void AddBenchServeCommand(CLI::App& bench, Invocation& invocation) {
  auto flags = std::make_shared<BenchServeFlags>();
  CLI::App* command = bench.add_subcommand(
      "serve", "Load a server of OpenAI's API over HTTP and measure what its clients see");
  command->footer(
      "Without --conversations, --decode-streams or --needles: independent random prompts, each with a nonce "
      "in "
      "front.\nDocumented in docs/bench-serve.md.");
  AddLoadFlags(*command, flags->common);
  AddRandomFlags(*command, *flags);
  CLI::Option* const conversations = AddConversationFlags(*command, flags->conversations);
  CLI::Option* const fairness = AddFairnessFlags(*command, flags->fairness);
  CLI::Option* const needles = AddNeedleFlags(*command, flags->needles);
  conversations->excludes(fairness)->excludes(needles);
  fairness->excludes(needles);
  command->callback([flags, conversations, fairness, needles, &invocation] {
    const LoadKind kind = *conversations ? LoadKind::kConversations
                          : *fairness    ? LoadKind::kFairness
                          : *needles     ? LoadKind::kNeedles
                                         : LoadKind::kRandom;
    invocation.run = [flags, kind] { return ReportRun(BenchServe(kind, *flags)); };
  });
}

}  // namespace millrace::app
