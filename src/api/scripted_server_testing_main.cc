// A server of written answers for tests of real clients: everything but the model is that of `millrace
// serve`. Prints the same ready line; ends when it is killed.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "api/scripted_server.h"

namespace millrace::api {
namespace {

struct Scripts {
  std::string examples;
  std::string answers;
};

Status Play(ScriptedServer& server, const Scripts& scripts) {
  if (!scripts.examples.empty()) MILLRACE_RETURN_IF_ERROR(server.PlayExamples(scripts.examples));
  if (!scripts.answers.empty()) MILLRACE_RETURN_IF_ERROR(server.PlayAnswers(scripts.answers));
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
  app.add_option("--step-us", step_us, "Duration of a step in microseconds");
  app.add_option("--keep-alive-ms", keep_alive_ms, "Silence of a stream before it is broken");
  CLI11_PARSE(app, argc, argv);
  options.tokenizer = tokenizer;
  options.model.step_delay = std::chrono::microseconds(step_us);
  options.model.max_model_len = 200'000;
  options.model.max_batch_tokens = 4096;
  options.model.record_steps = false;
  options.http.keep_alive_interval = std::chrono::milliseconds(keep_alive_ms);
  return millrace::api::Run(options, scripts);
}
