#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include "app/api_key_sources.h"
#include "base/result.h"
#include "loadgen/load_session.h"

namespace millrace::app {

// What the subcommands of `bench` that load a server over HTTP take.
struct LoadFlags {
  std::string url;
  std::string model;  // empty: the server's first
  ApiKeySources api_keys;
  uint64_t seed = 0;
  double temperature = 0;
  bool ignore_eos = false;
  std::string extra_body;  // JSON object
  int max_retries = 0;
  double timeout_s = 6 * 3600;
  double stall_timeout_s = 600;
  std::optional<double> tokens_per_word;
  bool json = false;
};

// `flags` live as long as `command`.
void AddLoadFlags(CLI::App& command, LoadFlags& flags);

// Errors name the flag, value and remedy: no URL, an extra body that is no JSON object, a key file.
Result<loadgen::LoadSessionOptions> ToSessionOptions(const LoadFlags& flags, const Environment& environment);

}  // namespace millrace::app
