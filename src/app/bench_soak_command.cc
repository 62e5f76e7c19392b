#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <boost/json.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "app/commands.h"
#include "app/load_flags.h"
#include "app/number_check.h"
#include "loadgen/soak.h"
#include "loadgen/soak_report.h"

namespace millrace::app {
namespace {

struct BenchSoakFlags {
  LoadFlags common;
  loadgen::SoakOptions soak;
  bool no_tools = false;
};

void AddSoakFlags(CLI::App& command, loadgen::SoakOptions& options) {
  constexpr int64_t kMaxTokens = int64_t{1} << 24;
  const auto tokens = CLI::Range(int64_t{1}, kMaxTokens);
  const auto rate = [&](const char* name, double& value, const char* what) {
    command.add_option(name, value, what)->check(Between(0.0, 1.0))->capture_default_str();
  };
  const auto length = [&](const char* name, int64_t& value, const char* what) {
    command.add_option(name, value, what)->check(tokens)->capture_default_str();
  };
  command.add_option("--duration", options.duration_s, "Seconds in which sessions begin something new")
      ->check(Between(0.0, 30.0 * 24 * 3600))
      ->capture_default_str();
  command.add_option("--sessions", options.sessions, "Agents at work at once")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  length("--system-len", options.system_tokens, "Tokens of the system prompt that all agents share");
  length("--input-len", options.input_tokens, "Tokens of a task");
  length("--tool-output-len", options.tool_tokens, "Tokens of a tool's output");
  length("--output-len", options.output_tokens, "Most tokens of an answer");
  length("--compact-at", options.compact_at_tokens, "Tokens of a prompt from which on a summary replaces it");
  rate("--reminder-rate", options.reminder_rate,
       "Share of requests in which a reminder moves to the last message");
  rate("--disconnect-rate", options.disconnect_rate,
       "Share of requests whose client leaves, then asks again");
  rate("--edit-rate", options.edit_rate, "Share of requests asked again with their last message shortened");
  rate("--repeat-rate", options.repeat_rate, "Share of requests asked again as they were");
  rate("--subagent-rate", options.subagent_rate, "Share of tasks that start sub-agents");
  command.add_option("--settle", options.settle_s, "Seconds that the server gets at the end to become idle")
      ->check(Between(0.0, 3600.0))
      ->capture_default_str();
  command
      .add_option("--give-up-after", options.give_up_s,
                  "Seconds without one connection after which the soak ends with a fault")
      ->check(Between(0.1, 1e6))
      ->capture_default_str();
}

Status BenchSoak(const BenchSoakFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(loadgen::LoadSessionOptions options,
                            ToSessionOptions(flags.common, ProcessEnvironment()));
  MILLRACE_ASSIGN_OR_RETURN(loadgen::LoadSession session, loadgen::LoadSession::Open(std::move(options)));
  loadgen::SoakOptions soak = flags.soak;
  soak.tools = !flags.no_tools;
  const std::string url = session.client.http().options().url.ToString();
  const std::string& model = session.client.options().model;
  if (!flags.common.json) {
    fmt::print("{}, model {}: {} agents for {} s, seed {}\n", url, model, soak.sessions, soak.duration_s,
               flags.common.seed);
    std::fflush(stdout);
  }
  const loadgen::SoakResult result = RunSoak(session, soak);
  if (flags.common.json) {
    boost::json::object json = loadgen::Json(result);
    json["url"] = url;
    json["model_id"] = model;
    json["seed"] = flags.common.seed;
    fmt::print("{}\n", boost::json::serialize(json));
  } else {
    fmt::print("{}", loadgen::Text(result));
  }
  std::fflush(stdout);
  const std::vector<std::string> faults = result.Faults();
  if (!faults.empty()) return Error(ErrorCode::kMismatch, fmt::format("{}", fmt::join(faults, "; ")));
  return {};
}

}  // namespace

void AddBenchSoakCommand(CLI::App& bench, Invocation& invocation) {
  auto flags = std::make_shared<BenchSoakFlags>();
  CLI::App* command = bench.add_subcommand(
      "soak",
      "Agents at work on a server of OpenAI's API; compares its answers and what it holds at the end");
  command->footer(
      "Exit status 1 when answers to one prompt differ at temperature 0, a request failed, the server could "
      "not "
      "be reached for a while, or is not idle at the end.\nDocumented in docs/bench-serve.md.");
  flags->common.max_retries = 100;  // a full queue is no fault
  AddLoadFlags(*command, flags->common);
  AddSoakFlags(*command, flags->soak);
  command->add_flag("--no-tools", flags->no_tools, "Declare no tool, for servers that refuse it");
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportRun(BenchSoak(*flags)); }; });
}

}  // namespace millrace::app
