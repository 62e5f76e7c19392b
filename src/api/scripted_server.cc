#include "api/scripted_server.h"

#include <fmt/format.h>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>

#include <exception>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "api/connect.h"
#include "api/drain.h"

namespace millrace::api {

Result<std::unique_ptr<ScriptedServer>> ScriptedServer::Start(ScriptedServerOptions options) {
  std::unique_ptr<ScriptedServer> server(new ScriptedServer);
  MILLRACE_ASSIGN_OR_RETURN(auto tokenizer, text::Tokenizer::Load(options.tokenizer));
  server->tokenizer_ = std::make_unique<text::Tokenizer>(std::move(tokenizer));
  MILLRACE_ASSIGN_OR_RETURN(auto encoder, text::ChatEncoder::Create(*server->tokenizer_));
  server->encoder_.emplace(std::move(encoder));
  options.model.vocab_size = server->tokenizer_->vocab_size();
  options.model.eos_token_id = server->encoder_->control_ids().eos;
  auto model = std::make_unique<engine::ScriptedModel>(options.model);
  server->model_ = model.get();
  server->engine_ = std::make_unique<engine::Engine>(std::move(model), options.engine);
  server->ledger_.Open("scripts", 1 << 20);
  server->service_ = std::make_unique<Service>(*server->engine_, *server->encoder_,
                                               std::move(options.service), &server->ledger_);
  MILLRACE_ASSIGN_OR_RETURN(server->http_, HttpServer::Bind(options.http));
  MILLRACE_RETURN_IF_ERROR(Connect(*server->http_, *server->service_));
  return server;
}

ScriptedServer::~ScriptedServer() {
  if (http_) http_->Shutdown(std::chrono::steady_clock::now());
  service_.reset();
  if (model_ != nullptr) model_->ReleaseSteps();
  engine_.reset();
}

void ScriptedServer::PlayByDefault(std::string_view answer) {
  model_->PlayByDefault(tokenizer_->EncodePrompt(answer));
}

void ScriptedServer::PlayChat(std::string_view user_message, bool thinking, std::string_view answer) {
  text::ChatRequest chat;
  chat.messages.push_back({.role = text::Role::kUser, .content = std::string(user_message)});
  chat.options.thinking = thinking;
  const auto prompt = encoder_->Render(chat);
  MILLRACE_CHECK(prompt.ok(), "a lone user message renders");
  model_->Play(encoder_->Encode(*prompt), tokenizer_->EncodePrompt(answer));
}

Status ScriptedServer::PlayExamples(const std::filesystem::path& examples_json) {
  std::ifstream file(examples_json);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return Error(ErrorCode::kIo, fmt::format("cannot read {}", examples_json.string()));
  try {
    const boost::json::value examples = boost::json::parse(text.str());
    for (const boost::json::value& example : examples.as_array()) {
      const auto ids = [&](const char* key) {
        std::vector<TokenId> list;
        for (const boost::json::value& id : example.as_object().at(key).as_array())
          list.push_back(id.to_number<TokenId>());
        return list;
      };
      model_->Play(ids("prompt_ids"), ids("output_ids"));
    }
  } catch (const std::exception& error) {
    return Error(ErrorCode::kCorrupt, fmt::format("{}: {}", examples_json.string(), error.what()));
  }
  return {};
}

void ScriptedServer::Drain(std::chrono::milliseconds timeout) {
  DrainServer(*http_, *service_, *engine_, std::chrono::steady_clock::now() + timeout);
}

}  // namespace millrace::api
