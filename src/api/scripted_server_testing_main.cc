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

int Run(const ScriptedServerOptions& options, const std::string& examples) {
  auto server = ScriptedServer::Start(options);
  if (server.ok() && !examples.empty()) {
    const Status played = (*server)->PlayExamples(examples);
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
  std::string tokenizer, examples;
  int step_ms = 2;
  CLI::App app("A server of written answers", "millrace_scripted_server");
  app.add_option("tokenizer", tokenizer, "Directory of a tokenizer.json")->required();
  app.add_option("--examples", examples, "A checkpoint's examples.json, whose answers it plays");
  app.add_option("--port", options.http.port, "0: any free port");
  app.add_option("--served-model-name", options.service.served_model_names, "Public names");
  app.add_option("--max-num-seqs", options.engine.max_num_seqs, "Sequences at once");
  app.add_option("--max-queue", options.engine.max_queue, "Sequences that may wait");
  app.add_option("--step-ms", step_ms, "Duration of a step");
  CLI11_PARSE(app, argc, argv);
  options.tokenizer = tokenizer;
  options.model.step_delay = std::chrono::milliseconds(step_ms);
  options.model.max_model_len = 100'000;
  return millrace::api::Run(options, examples);
}
