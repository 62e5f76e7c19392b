#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/http_server.h"
#include "api/service.h"
#include "base/ledger.h"
#include "engine/engine.h"
#include "engine/scripted_model.h"
#include "text/chat_prompt.h"
#include "text/tokenizer.h"

// For tests and for real clients' tests: part of millrace_api_testing only.

namespace millrace::api {

struct ScriptedServerOptions {
  std::filesystem::path tokenizer;     // directory of a tokenizer.json, models/mini
  engine::ScriptedModelOptions model;  // vocab_size and eos_token_id are the tokenizer's
  engine::EngineOptions engine;
  ServiceOptions service{.served_model_names = {"scripted"}, .version = "test"};
  HttpServerOptions http{.port = 0};
};

// The whole server over a model that plays written answers: everything between a socket and the engine's
// thread is the real thing. One thread, but for model() and engine().
class ScriptedServer {
 public:
  // Errors: no such tokenizer, port in use.
  static Result<std::unique_ptr<ScriptedServer>> Start(ScriptedServerOptions options);
  // Releases held steps and closes everything at once.
  ~ScriptedServer();

  // Texts are trusted: "<think>" and the like are control tokens. An answer ends with the end token.
  void PlayByDefault(std::string_view answer);
  // The answer to a lone user message; in thinking mode with the default effort.
  void PlayChat(std::string_view user_message, bool thinking, std::string_view answer);
  // Answers whose prompts' ids are in an examples.json of a checkpoint. Error naming the file.
  Status PlayExamples(const std::filesystem::path& examples_json);
  // The answers of a file of one JSON array: {"after": text, "answer": text, "prefill_ms": integer,
  // optional}. A prompt, as text with its control tokens, gets the answer whose `after` ends last in it, the
  // longest of those. So the turns of a conversation follow each other, however a client words the rest.
  // Error naming the file.
  Status PlayAnswers(const std::filesystem::path& answers_json);

  engine::ScriptedModel& model() { return *model_; }
  engine::Engine& engine() { return *engine_; }
  HttpServer& http() { return *http_; }
  Service& service() { return *service_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }

  // As `millrace serve` does on SIGTERM.
  void Drain(std::chrono::milliseconds timeout);

 private:
  ScriptedServer() = default;

  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<text::ChatEncoder> encoder_;
  MemoryLedger ledger_;
  engine::ScriptedModel* model_ = nullptr;  // the engine's
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace millrace::api
