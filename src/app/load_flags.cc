#include "app/load_flags.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>
#include <utility>

#include "app/number_check.h"

namespace millrace::app {
namespace {

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

void AddLoadFlags(CLI::App& command, LoadFlags& flags) {
  constexpr double kMaxSeconds = 30 * 24 * 3600;
  command.add_option("url,--base-url", flags.url, "The server, http://HOST:PORT");
  command.add_option("--model,-m", flags.model, "Model to ask for; without it the first of /v1/models");
  command.add_option("--api-key", flags.api_keys.keys,
                     "Key of the server; other users of the machine see it");
  command.add_option("--api-key-file", flags.api_keys.files,
                     "File with the key; without either MILLRACE_API_KEY or VLLM_API_KEY");
  command.add_option("--seed", flags.seed, "Of words, lengths, arrivals and choices; nonces never repeat")
      ->capture_default_str();
  command.add_option("--temperature", flags.temperature, "Of every request")
      ->check(Between(0.0, 2.0))
      ->capture_default_str();
  command.add_flag("--ignore-eos", flags.ignore_eos, "Ask for answers of full length");
  command.add_option("--extra-body", flags.extra_body, "JSON object of members that every request gets");
  command
      .add_option("--retry,--max-retries", flags.max_retries,
                  "Times that a request answered 429 or 503 is sent again, after its Retry-After")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command.add_option("--timeout", flags.timeout_s, "Seconds that a request may take")
      ->check(Between(0.001, kMaxSeconds))
      ->capture_default_str();
  command
      .add_option("--stall-timeout", flags.stall_timeout_s,
                  "Seconds without a byte until a request counts as stalled")
      ->check(Between(0.001, kMaxSeconds))
      ->capture_default_str();
  command
      .add_option("--tokens-per-word", flags.tokens_per_word,
                  "Length of a word; without it two short requests ask the server")
      ->check(Between(0.01, 100.0));
  command.add_flag("--json", flags.json, "One JSON object instead of a table");
}

Result<loadgen::LoadSessionOptions> ToSessionOptions(const LoadFlags& flags, const Environment& environment) {
  loadgen::LoadSessionOptions options;
  if (flags.url.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "the server's URL is required, as in 'millrace bench serve http://127.0.0.1:8000'");
  }
  MILLRACE_ASSIGN_OR_RETURN(options.http.url, loadgen::ServerUrl::Parse(flags.url));
  const Result<CollectedKeys> keys = CollectApiKeys(flags.api_keys, environment);
  if (!keys.ok()) return Error(ErrorCode::kInvalidArgument, keys.error().message());
  if (!keys->keys.empty()) options.http.api_key = keys->keys.front();
  options.http.timeout = Milliseconds(flags.timeout_s);
  options.http.stall_timeout = Milliseconds(flags.stall_timeout_s);
  options.chat.model = flags.model;
  options.chat.temperature = flags.temperature;
  options.chat.ignore_eos = flags.ignore_eos;
  options.chat.max_retries = flags.max_retries;
  if (!flags.extra_body.empty()) {
    boost::system::error_code failure;
    const boost::json::value body = boost::json::parse(flags.extra_body, failure);
    if (failure || !body.is_object()) {
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("--extra-body '{}' is not a JSON object, as {{\"top_k\": 1}} is", flags.extra_body));
    }
    options.chat.extra_body = body.get_object();
  }
  options.seed = flags.seed;
  options.tokens_per_word = flags.tokens_per_word;
  return options;
}

}  // namespace millrace::app
