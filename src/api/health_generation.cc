#include "api/health_generation.h"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <string>
#include <utility>

namespace millrace::api {
namespace {

HttpResponse Health(bool generated, std::string_view reason) {
  boost::json::object body;
  body["status"] = generated ? "ok" : "failed";
  if (!reason.empty()) body["reason"] = reason;
  HttpResponse response;
  response.status = generated ? 200 : 503;
  response.body = boost::json::serialize(body);
  return response;
}

class OneToken final : public engine::TokenSink {
 public:
  explicit OneToken(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  void OnToken(const engine::TokenEvent&) override {}
  void OnFinish(const engine::FinishEvent& event) override {
    const std::string reason = event.error ? event.error->message() : "";
    const bool generated = event.generated_tokens > 0;
    exchange_->Post([exchange = exchange_, generated, reason] { exchange->Send(Health(generated, reason)); });
  }

 private:
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace

void AnswerWithOneToken(engine::Engine& engine, TokenId first, std::shared_ptr<Exchange> exchange) {
  engine::GenerationRequest request;
  request.request_id = "health";
  request.prompt = {first};
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 1;
  const auto submitted = engine.Submit(std::move(request), std::make_shared<OneToken>(exchange));
  if (!submitted.ok()) {
    exchange->Send(Health(false, submitted.error().message()));
    return;
  }
  exchange->SetOnGone([&engine, id = *submitted] { engine.Cancel(id); });
}

}  // namespace millrace::api
