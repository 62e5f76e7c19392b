#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/connect.h"
#include "api/drain.h"
#include "api/http_server.h"
#include "api/service.h"
#include "app/check_tokenizer.h"
#include "app/commands.h"
#include "app/forward_flags.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "text/chat_prompt.h"
#include "text/tokenizer.h"

namespace millrace::app {
namespace {

struct ServeFlags {
  std::string checkpoint;
  std::vector<std::string> served_model_names;
  std::string max_model_len = "auto";
  int max_num_seqs = engine::EngineOptions().max_num_seqs;
  int max_queue = engine::EngineOptions().max_queue;
  int64_t max_num_batched_tokens = engine::StepperOptions().max_batch_tokens;
  std::optional<int64_t> max_total_tokens;
  std::optional<double> ram_gib;
  int threads = 0;
  model::LateLayers late_layers = engine::StepperOptions().late_layers;
  model::Numerics numerics = engine::StepperOptions().numerics;
  int64_t default_max_tokens = api::ServiceOptions().default_max_tokens;
  double shutdown_timeout_s = 30;
  std::string log_level = "info";
  api::HttpServerOptions http;
};

// "auto" and -1 are the checkpoint's own limit.
Result<std::optional<int64_t>> ParseMaxModelLen(const std::string& value) {
  if (value == "auto" || value == "-1") return std::optional<int64_t>();
  char* end = nullptr;
  const long long tokens = std::strtoll(value.c_str(), &end, 10);
  if (value.empty() || *end != '\0' || tokens < 1) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--max-model-len is '{}'; give a number of tokens of at least 1, or auto", value));
  }
  return std::optional<int64_t>(tokens);
}

Result<engine::LoadOptions> ToLoadOptions(const ServeFlags& flags) {
  engine::LoadOptions options;
  MILLRACE_ASSIGN_OR_RETURN(options.stepper.max_model_len, ParseMaxModelLen(flags.max_model_len));
  options.stepper.max_num_seqs = flags.max_num_seqs;
  options.stepper.max_batch_tokens = flags.max_num_batched_tokens;
  options.stepper.kv_tokens = flags.max_total_tokens;
  options.stepper.late_layers = flags.late_layers;
  options.stepper.numerics = flags.numerics;
  if (flags.ram_gib) {
    if (!std::isfinite(*flags.ram_gib)) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--ram is {}; it must be a number", *flags.ram_gib));
    }
    options.stepper.ram_bytes = static_cast<uint64_t>(*flags.ram_gib * static_cast<double>(kGiB));
  }
  options.threads = flags.threads;
  return options;
}

api::ServiceOptions ToServiceOptions(const ServeFlags& flags) {
  api::ServiceOptions options;
  options.served_model_names = flags.served_model_names;
  if (options.served_model_names.empty()) {
    // "models/mini/" is called mini.
    const auto path = std::filesystem::absolute(flags.checkpoint).lexically_normal();
    const auto name = path.has_filename() ? path.filename() : path.parent_path().filename();
    options.served_model_names.push_back(name.string());
  }
  options.default_max_tokens = flags.default_max_tokens;
  options.version = MILLRACE_VERSION;
  return options;
}

void PrintMemory(const MemoryLedger& ledger) {
  fmt::print("{:<32} {:>12} {:>12}\n", "memory", "planned", "held");
  uint64_t planned = 0, held = 0;
  for (const MemoryAccount* account : ledger.accounts()) {
    planned += account->planned_bytes();
    held += account->live_bytes();
    fmt::print("{:<32} {:>12} {:>12}\n", account->name(), HumanBytes(account->planned_bytes()),
               HumanBytes(account->live_bytes()));
  }
  fmt::print("{:<32} {:>12} {:>12}\n", "total", HumanBytes(planned), HumanBytes(held));
}

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

Status Serve(const ServeFlags& flags) {
  MILLRACE_RETURN_IF_ERROR(SetUpLog(flags.log_level));
  MILLRACE_ASSIGN_OR_RETURN(const engine::LoadOptions load_options, ToLoadOptions(flags));
  const StopSignals signals;
  // The I/O thread, which calls the service, has ended when this function returns: DrainServer joins it.
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<api::HttpServer> http, api::HttpServer::Bind(flags.http));
  MILLRACE_ASSIGN_OR_RETURN(engine::LoadedModel loaded,
                            engine::LoadStepModel(flags.checkpoint, load_options));
  MILLRACE_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, text::Tokenizer::Load(flags.checkpoint));
  MILLRACE_ASSIGN_OR_RETURN(const text::ChatEncoder encoder, text::ChatEncoder::Create(tokenizer));
  MILLRACE_RETURN_IF_ERROR(CheckTokenizer(tokenizer, loaded.checkpoint->config()));
  engine::EngineOptions engine_options;
  engine_options.max_num_seqs = flags.max_num_seqs;
  engine_options.max_queue = flags.max_queue;
  engine_options.prefill_chunk = flags.max_num_batched_tokens;
  engine::Engine engine(std::move(loaded.model), engine_options, loaded.ledger.get());
  const api::ServiceOptions service_options = ToServiceOptions(flags);
  api::Service service(engine, encoder, service_options, loaded.ledger.get());
  MILLRACE_RETURN_IF_ERROR(api::Connect(*http, service));

  PrintMemory(*loaded.ledger);
  fmt::print("millrace is ready: http://{} serves {} (context {} tokens, {} at a time)\n", http->address(),
             fmt::join(service_options.served_model_names, ", "),
             WithThousands(static_cast<uint64_t>(engine.max_model_len())), flags.max_num_seqs);
  std::fflush(stdout);

  WaitForStop(signals, flags, *http, service, engine);
  spdlog::info("stopped");
  return {};
}

void AddModelFlags(CLI::App& command, ServeFlags& flags) {
  command
      .add_option("checkpoint,-m,--model,--model-path", flags.checkpoint,
                  "Directory of a checkpoint in the released format")
      ->required();
  command.add_option("--served-model-name,--alias,--model-id", flags.served_model_names,
                     "Public names, the first is the default (the directory's name)");
  command
      .add_option("-c,--max-model-len,--context-length,--ctx-size", flags.max_model_len,
                  "Longest sequence in tokens, prompt and answer together; auto: the checkpoint's limit")
      ->capture_default_str();
  command
      .add_option("--max-num-seqs,--max-running-requests,--parallel", flags.max_num_seqs,
                  "Sequences served at once")
      ->check(CLI::Range(1, engine::kMaxNumSeqs))
      ->capture_default_str();
  command
      .add_option("--max-queue,--max-queued-requests", flags.max_queue,
                  "Sequences that may wait for a slot; more are answered 429")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--max-num-batched-tokens,--chunked-prefill-size,--prefill-chunk",
                  flags.max_num_batched_tokens, "Tokens of one step; longer prompts are cut into chunks")
      ->check(CLI::Range(int64_t{1}, engine::kMaxBatchTokens))
      ->capture_default_str();
  command
      .add_option("--max-total-tokens", flags.max_total_tokens,
                  "Tokens of all sequences together (default: enough for all at full length)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command.add_option("--ram", flags.ram_gib, "Refuse to start when the plan needs more, in GiB")
      ->check(CLI::Range(0.001, 1e9));
  command.add_option("-t,--threads", flags.threads, "Compute threads; 0: one for each processor")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  AddLateLayersFlag(command, flags.late_layers);
  AddNumericsFlag(command, flags.numerics);
}

void AddServerFlags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--host", flags.http.host, "Address to listen on; 0.0.0.0 is every interface")
      ->capture_default_str();
  command.add_option("--port", flags.http.port, "0: any free port; the ready line names it")
      ->capture_default_str();
  command
      .add_option("--default-max-tokens", flags.default_max_tokens,
                  "Most tokens of an answer whose request sets no limit; 0: the rest of the context")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  command
      .add_option("--shutdown-timeout", flags.shutdown_timeout_s,
                  "Seconds that running requests get to finish after SIGTERM or SIGINT")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command.add_option("--log-level", flags.log_level, "trace, debug, info, warning, error or off")
      ->capture_default_str();
}

}  // namespace

void AddServeCommand(CLI::App& root, Invocation& invocation) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* const command = root.add_subcommand("serve", "Serve a checkpoint over HTTP (OpenAI's API)");
  command->footer(
      "SIGTERM or SIGINT: takes no new requests, lets running ones finish, exits 0. A second one ends at "
      "once.");
  AddModelFlags(*command, *flags);
  AddServerFlags(*command, *flags);
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return ReportStatus(Serve(*flags)); }; });
}

}  // namespace millrace::app
