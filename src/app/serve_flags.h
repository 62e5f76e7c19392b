#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/http_server.h"
#include "api/service.h"
#include "app/api_key_sources.h"
#include "app/serving_plan.h"
#include "app/settings.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/load.h"

namespace CLI {
class App;
}

namespace millrace::app {

// What `millrace serve` was asked for, flag by flag.
struct ServeFlags {
  std::string checkpoint;
  std::vector<std::string> served_model_names;
  std::string max_model_len = "auto";
  std::optional<int> max_num_seqs = engine::EngineOptions().max_num_seqs;  // nullopt: auto
  int max_queue = engine::EngineOptions().max_queue;
  engine::SchedulePolicy schedule_policy = engine::EngineOptions().schedule_policy;
  double max_inter_token_ms = engine::PaceOptions().max_gap_seconds * 1e3;
  double min_decode_share = engine::PaceOptions().min_decode_share;
  int64_t max_num_batched_tokens = engine::StepperOptions().max_batch_tokens;
  std::optional<int64_t> max_total_tokens;
  std::optional<uint64_t> ram_bytes;  // nullopt: auto, what the machine has
  bool prefix_caching = engine::StepperOptions().prefix_caching;
  std::optional<int> prefix_tails;
  int threads = 0;
  model::LateLayers late_layers = engine::StepperOptions().late_layers;
  model::Numerics numerics = engine::StepperOptions().numerics;

  int64_t default_max_tokens = api::ServiceOptions().default_max_tokens;
  std::string default_chat_template_kwargs;
  int64_t repetition_limit_tokens = engine::EngineOptions().repetition_limit_tokens;
  size_t replay_bytes = api::ServiceOptions().replay_bytes;
  double shutdown_timeout_s = 30;
  double request_timeout_s = api::ServiceOptions().request_timeout_seconds;
  double max_queue_s = engine::EngineOptions().max_queue_seconds;
  double slow_step_s = engine::WatchdogOptions().slow_step_seconds;
  double stuck_after_s = engine::WatchdogOptions().stuck_after_seconds;
  size_t max_answers_bytes = api::ServiceOptions().max_answers_bytes;
  int max_preparing = api::ServiceOptions().max_preparing;

  std::string listen;
  api::HttpServerOptions http;
  ApiKeySources api_keys;
  std::vector<std::string> cors_origins;

  std::string log_level = "info";
  std::string log_format = "text";
  bool disable_access_log = false;
  std::vector<std::string> access_log_excluded;
  double log_stats_interval_s = 10;
  bool disable_log_stats = false;

  std::string config_path;
  bool print_config = false;
  std::vector<std::string> notes;  // of flags that change nothing
};

// Adds every flag of `serve`; `flags` lives as long as `command`.
void AddServeFlags(CLI::App& command, ServeFlags& flags);

// The same without --config and --print-config: what stands in files and the environment.
void AddSettingFlags(CLI::App& command, ServeFlags& flags);

// Of AddSettingFlags, leaves those that memory depends on in the help of `command`; all are accepted.
void HideFlagsWithoutMemory(CLI::App& command);

// Completes what the command line leaves open from the environment and, unless it is empty, `file`. `rules`
// name the flags that only `command` has, and those that mean something else to serve.
Result<Settings> CompleteSettings(CLI::App& command, const std::string& file, SettingsRules rules = {});

// What the flags ask of each part; kInvalidArgument naming flag and value.
Result<engine::LoadOptions> ToLoadOptions(const ServeFlags& flags);
AutomaticSizes ToAutomaticSizes(const ServeFlags& flags);
Result<rig::MemoryBudget> ToBudget(const ServeFlags& flags);
engine::EngineOptions ToEngineOptions(const ServeFlags& flags);
Result<api::HttpServerOptions> ToHttpOptions(const ServeFlags& flags);
Result<api::ServiceOptions> ToServiceOptions(const ServeFlags& flags, std::vector<std::string> api_keys);
LogFormat ToLogFormat(const ServeFlags& flags);

// Only this machine can reach it.
bool IsLoopback(const std::string& host);

}  // namespace millrace::app
