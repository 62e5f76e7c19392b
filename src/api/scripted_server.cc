#include "api/scripted_server.h"

#include <fmt/format.h>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>

#include <exception>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "api/connect.h"
#include "api/drain.h"

namespace millrace::api {

namespace {

namespace json = boost::json;

struct Answer {
  std::string after;
  engine::ScriptedModel::Script script;
};

// `use` may throw on a malformed object.
template <typename UseFn>
Status ForEachObject(const std::filesystem::path& path, UseFn use) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return Error(ErrorCode::kIo, fmt::format("cannot read {}", path.string()));
  try {
    const json::value list = json::parse(text.str());
    for (const json::value& entry : list.as_array()) use(entry.as_object());
  } catch (const std::exception& error) {
    return Error(ErrorCode::kCorrupt, fmt::format("{}: {}", path.string(), error.what()));
  }
  return {};
}

}  // namespace

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
  server->engine_ = std::make_unique<engine::Engine>(std::move(model), options.engine, &server->ledger_);
  server->service_ = std::make_unique<Service>(*server->engine_, *server->encoder_,
                                               std::move(options.service), &server->ledger_);
  MILLRACE_ASSIGN_OR_RETURN(server->http_, HttpServer::Bind(options.http));
  server->http_->OpenAccounts(server->ledger_);
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
  return ForEachObject(examples_json, [&](const json::object& example) {
    const auto ids = [&](const char* key) {
      std::vector<TokenId> list;
      for (const json::value& id : example.at(key).as_array()) list.push_back(id.to_number<TokenId>());
      return list;
    };
    model_->Play(ids("prompt_ids"), ids("output_ids"));
  });
}

Status ScriptedServer::PlayAnswers(const std::filesystem::path& answers_json) {
  std::vector<Answer> answers;
  MILLRACE_RETURN_IF_ERROR(ForEachObject(answers_json, [&](const json::object& entry) {
    Answer& answer = answers.emplace_back();
    answer.after = entry.at("after").as_string();
    answer.script.answer = tokenizer_->EncodePrompt(std::string_view(entry.at("answer").as_string()));
    if (const json::value* delay = entry.if_contains("prefill_ms"))
      answer.script.prefill_delay = std::chrono::milliseconds(delay->to_number<int>());
  }));
  model_->ChooseScripts([answers = std::move(answers), tokenizer = tokenizer_.get()](
                            std::span<const TokenId> prompt) -> std::optional<engine::ScriptedModel::Script> {
    const std::string text = tokenizer->Decode(prompt, text::ControlTokens::kKeep);
    const Answer* chosen = nullptr;
    size_t end = 0;
    for (const Answer& answer : answers) {
      const size_t begin = text.rfind(answer.after);
      if (begin == std::string::npos) continue;
      const size_t answer_end = begin + answer.after.size();
      if (chosen != nullptr &&
          std::pair(answer_end, answer.after.size()) < std::pair(end, chosen->after.size()))
        continue;
      end = answer_end;
      chosen = &answer;
    }
    return chosen == nullptr ? std::nullopt : std::optional(chosen->script);
  });
  return {};
}

void ScriptedServer::Drain(std::chrono::milliseconds timeout) {
  DrainServer(*http_, *service_, *engine_, std::chrono::steady_clock::now() + timeout);
}

}  // namespace millrace::api
