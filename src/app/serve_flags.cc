#include "app/serve_flags.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "app/built_in_flags.h"
#include "app/byte_size.h"
#include "app/forward_flags.h"
#include "app/number_check.h"
#include "app/version.h"
#include "base/units.h"
#include "engine/repetition_guard.h"
#include "rig/machine_memory.h"

namespace millrace::app {
namespace {

constexpr const char* kModel = "Model";
constexpr const char* kSchedule = "Schedule";
constexpr const char* kAnswers = "Answers";
constexpr const char* kAccess = "Address and access";
constexpr const char* kLimits = "Limits of clients";
constexpr const char* kLog = "Log";
constexpr const char* kConfiguration = "Configuration";

// A duration in seconds, fractions allowed.
void AddSeconds(CLI::App& command, const std::string& names, std::chrono::milliseconds& value,
                const std::string& description) {
  const double seconds = std::chrono::duration<double>(value).count();
  command
      .add_option_function<double>(
          names,
          [&value](double given) {
            value = std::chrono::milliseconds(static_cast<int64_t>(std::llround(given * 1e3)));
          },
          description)
      ->check(Between(0.001, 1e6))
      ->type_name("SECONDS")
      ->default_str(fmt::format("{}", seconds))
      ->group(kLimits);
}

// A number of bytes, "32MiB"; at least `least`, 0 or 1.
void AddBytes(CLI::App& command, const std::string& names, size_t& value, const std::string& description,
              uint64_t least = 1) {
  // Read as unsigned, -1 would be no limit at all.
  const CLI::Validator size(
      [least](std::string& text) {
        constexpr uint64_t kMost = uint64_t{1} << 40;
        const std::string given = text;
        const std::string range = fmt::format("Value {} not in range {} B to 1 TiB", given, least);
        if (given.find('-') != std::string::npos) return range;
        try {
          const std::string error = CLI::AsSizeValue(/*kb_is_1000=*/true)(text);
          if (!error.empty()) return error;
        } catch (const CLI::ValidationError& error) {
          if (std::string_view(error.what()).find("overflow") != std::string_view::npos) return range;
          throw;
        }
        uint64_t bytes = 0;
        const bool fits = CLI::detail::lexical_cast(text, bytes) && bytes >= least && bytes <= kMost;
        return fits ? std::string() : range;
      },
      "");
  command.add_option(names, value, description)
      ->transform(size)
      ->type_name("BYTES")
      ->capture_default_str()
      ->group(kLimits);
}

void AddModelFlags(CLI::App& command, ServeFlags& flags) {
  command
      .add_option("checkpoint,-m,--model,--model-path", flags.checkpoint,
                  "Directory of a checkpoint in the released format")
      ->group(kModel);
  command
      .add_option("--served-model-name,--alias,--model-id", flags.served_model_names,
                  "Public names, the first is the default (the directory's name)")
      ->group(kModel);
}

// "auto" or a number.
void AddMaxNumSeqs(CLI::App& command, ServeFlags& flags) {
  const CLI::Validator number_or_auto(
      [](const std::string& text) {
        int number = 0;
        const bool fits = text == "auto" || (CLI::detail::lexical_cast(text, number) && number >= 1 &&
                                             number <= engine::kMaxNumSeqs);
        return fits ? std::string()
                    : fmt::format("'{}' is no number from 1 to {}, nor auto", text, engine::kMaxNumSeqs);
      },
      "");
  command
      .add_option_function<std::string>(
          "--max-num-seqs,--max-running-requests,--parallel,--concurrency,--batched-session",
          [&flags](const std::string& text) {
            int number = 0;
            flags.max_num_seqs.reset();
            if (text != "auto" && CLI::detail::lexical_cast(text, number)) flags.max_num_seqs = number;
          },
          "Sequences served at once; auto: as many as fit, once --max-model-len is decided")
      ->check(number_or_auto)
      ->type_name("N|auto")
      ->default_str(std::to_string(*flags.max_num_seqs))
      ->group(kModel);
}

void AddRam(CLI::App& command, ServeFlags& flags) {
  command
      .add_option_function<std::string>(
          "--ram",
          [&flags](const std::string& text) {
            flags.ram_bytes.reset();
            if (text != "auto") flags.ram_bytes = *ParseByteSize(text, Gigabyte::kDecimal);
          },
          "Memory that the plan, mapped weights included, has to fit into, 96GB or 84GiB, a number alone in "
          "GiB; "
          "auto: what the machine or its control group has left, where weights that do not fit are only slow")
      ->check(CLI::Validator(
          [](const std::string& text) {
            if (text == "auto") return std::string();
            const Result<uint64_t> bytes = ParseByteSize(text, Gigabyte::kDecimal);
            return bytes.ok() ? std::string() : bytes.error().message();
          },
          ""))
      ->type_name("BYTES|auto")
      ->default_str("auto")
      ->group(kModel);
}

void AddSizeFlags(CLI::App& command, ServeFlags& flags) {
  command
      .add_option(
          "-c,--max-model-len,--context-length,--ctx-size,--ctx", flags.max_model_len,
          "Longest sequence in tokens, prompt and answer together; auto: the longest that fits, up to the "
          "checkpoint's limit")
      ->capture_default_str()
      ->group(kModel);
  AddMaxNumSeqs(command, flags);
  command
      .add_option("--max-queue,--max-queued-requests", flags.max_queue,
                  "Sequences that may wait for a slot; more are answered 429")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->group(kModel);
  command
      .add_option(
          "-b,--max-num-batched-tokens,--chunked-prefill-size,--prefill-chunk,--chunk,--batch-size,--ubatch-"
          "size",
          flags.max_num_batched_tokens, "Tokens of one step; longer prompts are cut into chunks")
      ->check(CLI::Range(int64_t{1}, engine::kMaxBatchTokens))
      ->capture_default_str()
      ->group(kModel);
  command
      .add_option("--max-total-tokens", flags.max_total_tokens,
                  "Tokens of all sequences together (default: enough for all at full length)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->group(kModel);
  command
      .add_flag("--enable-prefix-caching,!--no-enable-prefix-caching,!--disable-radix-cache",
                flags.prefix_caching,
                "Keep what sequences leave behind for prompts that begin alike (always on unless refused)")
      ->group(kModel);
  command
      .add_option(
          "--prefix-cache-tails", flags.prefix_tails,
          "Window states kept to go on from; where none is left, a few thousand tokens are read again "
          "(default: by sequences and pages)")
      ->check(CLI::Range(0, engine::kMaxPrefixTails))
      ->group(kModel);
  AddRam(command, flags);
  command.add_option("-t,--threads", flags.threads, "Compute threads; 0: one for each processor")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->group(kModel);
  AddLateLayersFlag(command, flags.late_layers);
  AddNumericsFlag(command, flags.numerics);
  for (const char* name : {"--late-layers", "--numerics"}) command.get_option(name)->group(kModel);
}

void AddScheduleFlags(CLI::App& command, ServeFlags& flags) {
  std::vector<std::string> policies;
  for (const engine::SchedulePolicy policy : engine::kSchedulePolicies)
    policies.emplace_back(engine::SchedulePolicyName(policy));
  command
      .add_option_function<std::string>(
          "--schedule-policy,--scheduling-policy",
          [&flags](const std::string& name) {
            for (const engine::SchedulePolicy policy : engine::kSchedulePolicies)
              if (engine::SchedulePolicyName(policy) == name) flags.schedule_policy = policy;
          },
          "How prompts that are read together share a step: fair (equal parts), fcfs (in order of arrival) "
          "or "
          "shortest (least left first, a quarter for the oldest)")
      ->check(CLI::IsMember(policies))
      ->default_str(std::string(engine::SchedulePolicyName(flags.schedule_policy)))
      ->group(kSchedule);
  command
      .add_option("--max-inter-token-ms,--itl-target-ms", flags.max_inter_token_ms,
                  "Longest gap between two tokens of an answer while prompts are read, in ms; 0: any")
      ->check(Between(0.0, 1e7))
      ->capture_default_str()
      ->group(kSchedule);
  command
      .add_option("--min-decode-share", flags.min_decode_share,
                  "Share of its speed alone that an answer keeps while prompts are read, 0 to 1; 0: none")
      ->check(Between(0.0, 1.0))
      ->capture_default_str()
      ->group(kSchedule);
  command
      .add_option("--request-timeout", flags.request_timeout_s,
                  "Seconds that an answer may take from its request's arrival, then 504; 0: any")
      ->check(Between(0.0, 1e8))
      ->capture_default_str()
      ->group(kSchedule);
  command
      .add_option("--max-queue-seconds,--queue-timeout", flags.max_queue_s,
                  "Seconds that a request may wait for a slot, then 429; 0: any")
      ->check(Between(0.0, 1e8))
      ->capture_default_str()
      ->group(kSchedule);
  command
      .add_option("--slow-step", flags.slow_step_s,
                  "Seconds of one step after which the log says what it is, and again at each doubling")
      ->check(Between(0.001, 1e6))
      ->capture_default_str()
      ->group(kSchedule);
  command
      .add_option("--stuck-after,--stuck-seconds", flags.stuck_after_s,
                  "Seconds without progress after which /ready answers 503 and /health says stuck")
      ->check(Between(1.0, 1e6))
      ->capture_default_str()
      ->group(kSchedule);
}

void AddAnswerFlags(CLI::App& command, ServeFlags& flags) {
  command
      .add_option("--default-max-tokens", flags.default_max_tokens,
                  "Most tokens of an answer whose request sets no limit; 0: the rest of the context")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str()
      ->group(kAnswers);
  command
      .add_option("--default-chat-template-kwargs,--chat-template-kwargs", flags.default_chat_template_kwargs,
                  "thinking and reasoning_effort of chats that do not say, as JSON: "
                  R"('{"thinking":true,"reasoning_effort":"high"}')")
      ->group(kAnswers);
  command
      .add_option("--repetition-limit", flags.repetition_limit_tokens,
                  "Ends an answer whose last so many tokens only repeat a phrase; 0: never")
      ->check(CLI::Range(int64_t{0}, int64_t{0}) |
              CLI::Range(engine::kMinRepetitionLimitTokens, int64_t{1} << 40))
      ->capture_default_str()
      ->group(kAnswers);
}

void AddAccessFlags(CLI::App& command, ServeFlags& flags) {
  command
      .add_option("--host", flags.http.host,
                  "Address to listen on; 0.0.0.0 and :: are every interface of the machine")
      ->capture_default_str()
      ->group(kAccess);
  command.add_option("--port", flags.http.port, "0: any free port; the ready line names it")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str()
      ->group(kAccess);
  command.add_option("--listen", flags.listen, "HOST:PORT, instead of both")->group(kAccess);
  command
      .add_option("--api-key", flags.api_keys.keys,
                  "A key that opens the server; every process of the machine can see it here, so better in a "
                  "file or in MILLRACE_API_KEY")
      ->group(kAccess);
  command.add_option("--api-key-file", flags.api_keys.files, "File of keys, one a line")->group(kAccess);
  command
      .add_option("--cors-allow-origin,--allowed-origins", flags.cors_origins,
                  "Origins whose web pages may use the server, https://chat.example; * is all")
      ->group(kAccess);
}

void AddLimitFlags(CLI::App& command, ServeFlags& flags) {
  api::HttpServerOptions& http = flags.http;
  command.add_option("--max-connections", http.max_connections, "Open connections; more are answered 503")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(kLimits);
  AddBytes(command, "--max-body-size", http.max_body_bytes, "A request's body; larger ones are answered 413");
  AddBytes(command, "--max-bodies-size", http.max_bodies_bytes,
           "All bodies being read or not yet decoded; more are answered 503");
  AddBytes(
      command, "--max-answers-size", flags.max_answers_bytes,
      "Of all answers under way, for what lists and choices take beyond an answer's text; requests that may "
      "take more than is left are answered 429, or 400");
  AddBytes(command, "--replay-size", flags.replay_bytes,
           "Answers kept so that later prompts repeat them token for token; 0: none", /*least=*/0);
  AddBytes(command, "--max-header-size", http.max_header_bytes,
           "A request's line and headers; larger ones are answered 431");
  AddSeconds(command, "--header-timeout", http.header_timeout, "For a request's line and headers");
  AddSeconds(command, "--body-timeout", http.body_timeout, "For a request's body");
  AddSeconds(command, "--idle-timeout,--timeout-keep-alive", http.idle_timeout,
             "Between two requests of a connection");
  AddSeconds(command, "--write-timeout", http.write_timeout,
             "For each 64 KiB of an answer; a client that reads slower is cut off");
  AddBytes(command, "--max-unread-size", http.max_output_bytes,
           "Of a stream, waiting for its client; one that has more is cut off");
  AddBytes(command, "--max-unread-total", http.max_outputs_bytes,
           "Of all answers, waiting for their clients, beside what each connection may have");
  AddSeconds(command, "--stream-keep-alive", http.keep_alive_interval,
             "Silence of a stream after which a comment is sent");
  command
      .add_option("--max-preparing", flags.max_preparing,
                  "Requests that wait to be decoded; more are answered 429")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(kLimits);
  command
      .add_option("--shutdown-timeout", flags.shutdown_timeout_s,
                  "Seconds that running requests get to finish after SIGTERM or SIGINT")
      ->check(Between(0.0, 1e6))
      ->capture_default_str()
      ->group(kLimits);
}

void AddLogFlags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--log-level", flags.log_level, "trace, debug, info, warning, error or off")
      ->capture_default_str()
      ->group(kLog);
  command.add_option("--log-format", flags.log_format, "text, or json: one object a line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str()
      ->group(kLog);
  command
      .add_flag("--disable-access-log,--disable-uvicorn-access-log", flags.disable_access_log,
                "No line for each request")
      ->default_str("false")
      ->group(kLog);
  command
      .add_option("--access-log-exclude-prefix,--uvicorn-access-log-exclude-prefixes",
                  flags.access_log_excluded, "Paths beginning so get no line: /health /metrics")
      ->group(kLog);
  command
      .add_option("--log-stats-interval", flags.log_stats_interval_s,
                  "Seconds between the lines of throughput, while there is work")
      ->check(Between(0.1, 1e6))
      ->capture_default_str()
      ->group(kLog);
  command.add_flag("--disable-log-stats", flags.disable_log_stats, "No lines of throughput")
      ->default_str("false")
      ->group(kLog);
}

void AddConfigurationFlags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--config", flags.config_path, "File of 'flag: value' lines; flags given here win")
      ->group(kConfiguration);
  command
      .add_flag("--print-config", flags.print_config,
                "Print all settings as a configuration file, without keys, and end")
      ->group(kConfiguration);
}

// Nothing for "auto" and -1.
Result<std::optional<int64_t>> ParseMaxModelLen(const std::string& value) {
  if (value == "auto" || value == "-1") return std::optional<int64_t>();
  int64_t tokens = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), tokens);
  if (error != std::errc() || end != value.data() + value.size() || tokens < 2) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--max-model-len is '{}'; give a number of tokens, at least 2 (prompt and answer), "
                    "or auto",
                    value));
  }
  return std::optional<int64_t>(tokens);
}

// "models/mini/" is called mini.
std::string DirectoryName(const std::string& checkpoint) {
  const auto path = std::filesystem::absolute(checkpoint).lexically_normal();
  return (path.has_filename() ? path.filename() : path.parent_path().filename()).string();
}

// vLLM's flag takes a JSON list of strings, here only as a spelling of several values.
std::vector<std::string> Origins(const std::vector<std::string>& given) {
  std::vector<std::string> origins;
  for (const std::string& value : given) {
    if (!value.starts_with('[')) {
      origins.push_back(value);
      continue;
    }
    for (std::string part : CLI::detail::split(value.substr(1, value.rfind(']') - 1), ',')) {
      std::erase_if(part, [](char c) { return c == '"' || c == '\'' || c == ' '; });
      if (!part.empty()) origins.push_back(part);
    }
  }
  return origins;
}

}  // namespace

void AddSettingFlags(CLI::App& command, ServeFlags& flags) {
  AddModelFlags(command, flags);
  AddSizeFlags(command, flags);
  AddScheduleFlags(command, flags);
  AddAnswerFlags(command, flags);
  AddAccessFlags(command, flags);
  AddLimitFlags(command, flags);
  AddLogFlags(command, flags);
  AddBuiltInFlags(command, flags.notes);
}

void AddServeFlags(CLI::App& command, ServeFlags& flags) {
  AddSettingFlags(command, flags);
  AddConfigurationFlags(command, flags);
}

void HideFlagsWithoutMemory(CLI::App& command) {
  for (CLI::Option* option : command.get_options({})) {
    const std::string& group = option->get_group();
    for (const std::string_view other : {kSchedule, kAnswers, kAccess, kLog, kBuiltInFlags})
      if (group == other) option->group("");
  }
}

Result<Settings> CompleteSettings(CLI::App& command, const std::string& file, SettingsRules rules) {
  rules.not_settings.insert(rules.not_settings.end(), {"config", "print-config"});
  rules.secrets = {"api-key"};
  Settings settings(command, std::move(rules));
  MILLRACE_RETURN_IF_ERROR(settings.ApplyEnvironment(ProcessEnvironment()));
  if (!file.empty()) MILLRACE_RETURN_IF_ERROR(settings.ApplyFile(file));
  return settings;
}

Result<engine::LoadOptions> ToLoadOptions(const ServeFlags& flags) {
  engine::LoadOptions options;
  MILLRACE_ASSIGN_OR_RETURN(options.stepper.max_model_len, ParseMaxModelLen(flags.max_model_len));
  // Never lowered without a word.
  if (options.stepper.max_model_len &&
      flags.max_total_tokens.value_or(INT64_MAX) < *options.stepper.max_model_len) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--max-total-tokens is {}, less than one sequence of --max-model-len {}; raise the "
                    "one, lower the other, or pass --max-model-len auto",
                    *flags.max_total_tokens, *options.stepper.max_model_len));
  }
  options.stepper.max_num_seqs = flags.max_num_seqs.value_or(1);
  options.stepper.max_batch_tokens = flags.max_num_batched_tokens;
  options.stepper.kv_tokens = flags.max_total_tokens;
  options.stepper.prefix_caching = flags.prefix_caching;
  options.stepper.prefix_tails = flags.prefix_tails;
  options.stepper.late_layers = flags.late_layers;
  options.stepper.numerics = flags.numerics;
  options.threads = flags.threads;
  return options;
}

AutomaticSizes ToAutomaticSizes(const ServeFlags& flags) {
  return {.max_model_len = flags.max_model_len == "auto" || flags.max_model_len == "-1",
          .max_num_seqs = !flags.max_num_seqs};
}

Result<rig::MemoryBudget> ToBudget(const ServeFlags& flags) {
  if (flags.ram_bytes) return rig::MemoryBudget{*flags.ram_bytes, "--ram"};
  return rig::ReadMachineMemory();
}

engine::EngineOptions ToEngineOptions(const ServeFlags& flags) {
  engine::EngineOptions options;
  options.max_num_seqs = flags.max_num_seqs.value_or(1);
  options.max_queue = flags.max_queue;
  options.max_queue_seconds = flags.max_queue_s;
  options.prefill_chunk = flags.max_num_batched_tokens;
  options.schedule_policy = flags.schedule_policy;
  options.pace = {.max_gap_seconds = flags.max_inter_token_ms / 1e3,
                  .min_decode_share = flags.min_decode_share};
  options.watchdog = {.slow_step_seconds = flags.slow_step_s, .stuck_after_seconds = flags.stuck_after_s};
  options.repetition_limit_tokens = flags.repetition_limit_tokens;
  return options;
}

Result<api::HttpServerOptions> ToHttpOptions(const ServeFlags& flags) {
  api::HttpServerOptions options = flags.http;
  if (flags.listen.empty()) return options;
  const size_t colon = flags.listen.rfind(':');
  const std::string port = colon == std::string::npos ? "" : flags.listen.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), options.port);
  std::string host = flags.listen.substr(0, std::min(colon, flags.listen.size()));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (error != std::errc() || end != port.data() + port.size() || host.empty()) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--listen is '{}'; give HOST:PORT, such as 127.0.0.1:8000 or [::1]:8000", flags.listen));
  }
  options.host = host;
  return options;
}

Result<api::ServiceOptions> ToServiceOptions(const ServeFlags& flags, std::vector<std::string> api_keys) {
  api::ServiceOptions options;
  options.served_model_names = flags.served_model_names;
  if (options.served_model_names.empty())
    options.served_model_names.push_back(DirectoryName(flags.checkpoint));
  options.default_max_tokens = flags.default_max_tokens;
  options.max_preparing = flags.max_preparing;
  options.replay_bytes = flags.replay_bytes;
  options.max_answers_bytes = flags.max_answers_bytes;
  options.version = Version();
  options.request_timeout_seconds = flags.request_timeout_s;
  options.api_keys = std::move(api_keys);
  options.cors_origins = Origins(flags.cors_origins);
  options.access_log = {!flags.disable_access_log, flags.access_log_excluded};
  options.model_path = flags.checkpoint;
  options.max_num_seqs = flags.max_num_seqs.value_or(1);
  options.max_body_bytes = flags.http.max_body_bytes;
  options.max_queue = flags.max_queue;
  if (!flags.default_chat_template_kwargs.empty()) {
    const Result<api::ChatDefaults> defaults = api::ParseChatDefaults(flags.default_chat_template_kwargs);
    if (!defaults.ok()) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--default-chat-template-kwargs: {}", defaults.error().message()));
    }
    options.chat_defaults = *defaults;
  }
  return options;
}

LogFormat ToLogFormat(const ServeFlags& flags) {
  return flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace millrace::app
