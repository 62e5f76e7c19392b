// A server of written answers for tests of real clients: everything but the model is that of `millrace
// serve`. Prints the same ready line; ends when it is killed.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <thread>

#include "api/scripted_server.h"

namespace millrace::api {
namespace {

struct Scripts {
  std::string examples;
  std::string answers;
  bool noise = false;
};

// Another row of logits for every prefix, in which all tokens of text are about as likely.
void PlayNoise(ScriptedServer& server) {
  server.model().ComputeLogits(
      [&tokenizer = server.tokenizer()](std::span<const TokenId> prefix, std::span<float> logits) {
        auto state = static_cast<uint64_t>(prefix.size()) << 32 | static_cast<uint32_t>(prefix.back());
        for (size_t id = 0; id < logits.size(); ++id) {
          constexpr float kNever = -100;
          state = state * 6364136223846793005U + 1442695040888963407U;
          logits[id] = tokenizer.IsControl(static_cast<TokenId>(id))
                           ? kNever
                           : static_cast<float>(state >> 40) / static_cast<float>(1 << 24);
        }
      });
}

Status Play(ScriptedServer& server, const Scripts& scripts) {
  if (!scripts.examples.empty()) MILLRACE_RETURN_IF_ERROR(server.PlayExamples(scripts.examples));
  if (!scripts.answers.empty()) MILLRACE_RETURN_IF_ERROR(server.PlayAnswers(scripts.answers));
  if (scripts.noise) PlayNoise(server);
  return {};
}

int Run(const ScriptedServerOptions& options, const Scripts& scripts) {
  auto server = ScriptedServer::Start(options);
  if (server.ok()) {
    const Status played = Play(**server, scripts);
    if (!played.ok()) server = played.error();
  }
  if (!server.ok()) {
    fmt::print(stderr, "millrace_scripted_server: {}\n", server.error().message());
    return 1;
  }
  fmt::print("millrace is ready: http://{} plays written answers\n", (*server)->http().address());
  std::fflush(stdout);
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace
}  // namespace millrace::api

int main(int argc, char** argv) {
  millrace::api::ScriptedServerOptions options;
  millrace::api::Scripts scripts;
  std::string tokenizer;
  options.model.max_model_len = 200'000;
  int step_us = 2000;
  int keep_alive_ms = 5000;
  CLI::App app("A server of written answers", "millrace_scripted_server");
  app.add_option("tokenizer", tokenizer, "Directory of a tokenizer.json")->required();
  app.add_option("--examples", scripts.examples, "A checkpoint's examples.json, whose answers it plays");
  app.add_option("--answers", scripts.answers,
                 "JSON array of {after, answer, prefill_ms}: what follows what");
  app.add_option("--port", options.http.port, "0: any free port");
  app.add_option("--served-model-name", options.service.served_model_names, "Public names");
  app.add_option("--max-num-seqs", options.engine.max_num_seqs, "Sequences at once");
  app.add_option("--max-queue", options.engine.max_queue, "Sequences that may wait");
  app.add_flag("--noise", scripts.noise, "All tokens about as likely, instead of written answers");
  app.add_option("--max-model-len", options.model.max_model_len, "Longest sequence in tokens");
  app.add_option("--max-answers-size", options.service.max_answers_bytes, "Bytes of answers under way");
  app.add_option("--max-unread-total", options.http.max_outputs_bytes, "Bytes of all unread answers");
  app.add_option("--step-us", step_us, "Duration of a step in microseconds");
  app.add_option("--keep-alive-ms", keep_alive_ms, "Silence of a stream before it is broken");
  CLI11_PARSE(app, argc, argv);
  options.tokenizer = tokenizer;
  options.service.max_num_seqs = options.engine.max_num_seqs;
  options.service.max_queue = options.engine.max_queue;
  options.model.step_delay = std::chrono::microseconds(step_us);
  options.model.max_batch_tokens = 4096;
  options.model.record_steps = false;
  options.http.keep_alive_interval = std::chrono::milliseconds(keep_alive_ms);
  return millrace::api::Run(options, scripts);
}
