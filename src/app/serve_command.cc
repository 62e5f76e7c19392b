#include <fmt/format.h>
#include <pthread.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/connect.h"
#include "api/drain.h"
#include "api/http_server.h"
#include "api/service.h"
#include "api/stats_reporter.h"
#include "app/check_tokenizer.h"
#include "app/commands.h"
#include "app/serve_flags.h"
#include "app/serving_plan.h"
#include "app/settings.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "text/chat_prompt.h"
#include "text/tokenizer.h"

namespace millrace::app {
namespace {

// SIGINT and SIGTERM, delivered only to who waits here: made before any thread starts, so that all block
// them.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    // A client or a pipe's reader that has gone is an error of its write.
    std::signal(SIGPIPE, SIG_IGN);
  }

  // Blocks until one arrives.
  int Wait() const {
    int signal = 0;
    sigwait(&set_, &signal);
    return signal;
  }

  // From here on the next one ends the process at once.
  void EndProcessOnNext() const {
    std::thread([set = set_] {
      int signal = 0;
      sigwait(&set, &signal);
      std::fprintf(stderr, "millrace: second signal, ending at once\n");
      std::_Exit(128 + signal);
    }).detach();
  }

 private:
  sigset_t set_;
};

// Blocks until the first signal and then until the orderly end that it asks for.
void WaitForStop(const StopSignals& signals, const ServeFlags& flags, api::HttpServer& http,
                 api::Service& service, engine::Engine& engine) {
  const int signal = signals.Wait();
  signals.EndProcessOnNext();
  const engine::EngineStats stats = engine.stats();
  spdlog::info("signal {}: no new requests; {} running and {} waiting may finish within {} s", signal,
               stats.running, stats.waiting, flags.shutdown_timeout_s);
  const std::chrono::duration<double> timeout(flags.shutdown_timeout_s);
  api::DrainServer(http, service, engine,
                   std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(timeout));
}

// The parts' options as the flags give them, all checked before anything is read.
struct ServeRequest {
  ServingOptions options;
  std::vector<std::string> warnings;
};

Result<ServeRequest> CheckFlags(const ServeFlags& flags, bool key_on_command_line) {
  ServeRequest request;
  ServingOptions& options = request.options;
  if (flags.checkpoint.empty())
    return Error(ErrorCode::kInvalidArgument, "a checkpoint is required: millrace serve DIRECTORY");
  MILLRACE_ASSIGN_OR_RETURN(options.load, ToLoadOptions(flags));
  options.engine = ToEngineOptions(flags);
  MILLRACE_ASSIGN_OR_RETURN(options.http, ToHttpOptions(flags));
  MILLRACE_ASSIGN_OR_RETURN(CollectedKeys keys, CollectApiKeys(flags.api_keys, ProcessEnvironment()));
  request.warnings = std::move(keys.warnings);
  if (key_on_command_line) {
    request.warnings.emplace_back(
        "--api-key on the command line can be seen by every user of this machine: use --api-key-file or "
        "MILLRACE_API_KEY");
  }
  if (keys.keys.empty() && !IsLoopback(options.http.host)) {
    request.warnings.push_back(fmt::format(
        "listening on {} without an API key: whoever reaches this machine can use the model; give "
        "--api-key-file",
        options.http.host));
  }
  MILLRACE_ASSIGN_OR_RETURN(options.service, ToServiceOptions(flags, std::move(keys.keys)));
  return request;
}

// The plan of the whole process; refused when it does not fit.
Result<ServingPlan> PlanMemory(const ServeFlags& flags, const ServingOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const formats::ModelConfig config,
                            model::Checkpoint::ReadConfig(flags.checkpoint));
  MILLRACE_ASSIGN_OR_RETURN(const rig::MemoryBudget budget, ToBudget(flags));
  MILLRACE_ASSIGN_OR_RETURN(ServingPlan plan, PlanServing(config, options, ToAutomaticSizes(flags), budget));
  if (!plan.verdict.fits) return Error(ErrorCode::kResourceExhausted, ServingPlanText(plan));
  return plan;
}

// An answer without a limit of its own ends at the context, whatever the default for it says.
void NoteClampedDefaults(const ServeFlags& flags, int64_t max_model_len) {
  if (flags.default_max_tokens <= max_model_len) return;
  spdlog::info("--default-max-tokens {} is more than the context of {} tokens: answers end there",
               flags.default_max_tokens, max_model_len);
}

Status Serve(const ServeFlags& flags, const ServingOptions& asked) {
  const StopSignals signals;
  // The I/O thread, which calls the service, has ended when this function returns: DrainServer joins it.
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<api::HttpServer> bound, api::HttpServer::Bind(asked.http));
  MILLRACE_ASSIGN_OR_RETURN(const ServingPlan plan, PlanMemory(flags, asked));
  const ServingOptions& options = plan.options;
  fmt::print("{}", ServingPlanText(plan));
  std::fflush(stdout);
  // First of all: without it, minutes of loading would be for nothing.
  MILLRACE_ASSIGN_OR_RETURN(const formats::ModelConfig config,
                            model::Checkpoint::ReadConfig(flags.checkpoint));
  MILLRACE_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, LoadTokenizerOf(flags.checkpoint, config));
  MILLRACE_ASSIGN_OR_RETURN(const text::ChatEncoder encoder, text::ChatEncoder::Create(tokenizer));
  MILLRACE_ASSIGN_OR_RETURN(engine::LoadedModel loaded,
                            engine::LoadStepModel(flags.checkpoint, options.load));
  // Ends before the ledger, in which what its connections still hold is given back.
  const std::unique_ptr<api::HttpServer> http = std::move(bound);
  const HeldMemory held = HoldProcessMemory(plan, *loaded.ledger);
  engine::Engine engine(std::move(loaded.model), options.engine, loaded.ledger.get());
  NoteClampedDefaults(flags, engine.max_model_len());
  api::Service service(engine, encoder, options.service, loaded.ledger.get());
  http->OpenAccounts(*loaded.ledger);
  MILLRACE_RETURN_IF_ERROR(api::Connect(*http, service));
  std::optional<api::StatsReporter> reporter;
  if (!flags.disable_log_stats) {
    const std::chrono::duration<double> interval(flags.log_stats_interval_s);
    reporter.emplace(
        engine, api::StatsReporterOptions{std::chrono::duration_cast<std::chrono::milliseconds>(interval),
                                          ToLogFormat(flags)});
  }

  fmt::print("millrace is ready: http://{} serves {} (context {} tokens, {} at a time)\n", http->address(),
             fmt::join(options.service.served_model_names, ", "),
             WithThousands(static_cast<uint64_t>(engine.max_model_len())), options.engine.max_num_seqs);
  std::fflush(stdout);

  WaitForStop(signals, flags, *http, service, engine);
  spdlog::info("stopped");
  return {};
}

// Exit status; what is wrong with the settings counts as a wrong command line.
int Run(CLI::App& command, const ServeFlags& flags) {
  const bool key_on_command_line = !flags.api_keys.keys.empty();
  const Result<Settings> settings = CompleteSettings(command, flags.config_path);
  if (!settings.ok()) return ReportUsage(settings.error());
  const Status logging = SetUpLog(flags.log_level, ToLogFormat(flags));
  if (!logging.ok()) return ReportUsage(logging.error());
  const Result<ServeRequest> request = CheckFlags(flags, key_on_command_line);
  if (!request.ok()) return ReportUsage(request.error());
  if (flags.print_config) {
    fmt::print("{}", settings->Print());
    const Result<CollectedKeys> keys = CollectApiKeys(flags.api_keys, ProcessEnvironment());
    if (!keys.ok()) return ReportStatus(keys.error());
    fmt::print("# keys that open the server, from all sources: {}\n", keys->keys.size());
    return 0;
  }
  for (const std::string& line : settings->UnknownVariables(ProcessEnvironment())) spdlog::warn("{}", line);
  for (const std::string& line : request->warnings) spdlog::warn("{}", line);
  for (const std::string& line : flags.notes) spdlog::info("{}", line);
  return ReportRun(Serve(flags, request->options));
}

}  // namespace

void AddServeCommand(CLI::App& root, Invocation& invocation) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* const command = root.add_subcommand("serve", "Serve a checkpoint over HTTP (OpenAI's API)");
  command->footer(
      "Every flag can also be given as MILLRACE_FLAG in the environment (--max-num-seqs: "
      "MILLRACE_MAX_NUM_SEQS) or in the file of --config; the command line wins over the environment, that "
      "over "
      "the file.\n"
      "SIGTERM or SIGINT: takes no new requests, lets running ones finish, exits 0. A second one ends at "
      "once.");
  AddServeFlags(*command, *flags);
  command->callback(
      [flags, command, &invocation] { invocation.run = [flags, command] { return Run(*command, *flags); }; });
}

}  // namespace millrace::app
