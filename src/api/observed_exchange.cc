#include "api/observed_exchange.h"

namespace millrace::api {

ObservedExchange::ObservedExchange(std::shared_ptr<Exchange> inner, RequestLine line, HttpHeaders headers,
                                   std::shared_ptr<const AccessLog> log, Metrics& metrics)
    : inner_(std::move(inner)),
      line_(std::move(line)),
      headers_(std::move(headers)),
      log_(std::move(log)),
      metrics_(metrics) {}

ObservedExchange::~ObservedExchange() {
  Log(kClientGone);
}

void ObservedExchange::Begin(HttpResponse& response) {
  metrics_.OnResponse(response.status);
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
  status_ = response.status;
}

void ObservedExchange::Send(HttpResponse response) {
  Begin(response);
  const int status = gone() ? kClientGone : status_;
  body_bytes_ = gone() ? 0 : response.body.size();
  inner_->Send(std::move(response));
  Log(status);
}

void ObservedExchange::BeginStream(HttpResponse head, std::function<std::string()> idle_filler) {
  Begin(head);
  inner_->BeginStream(std::move(head), std::move(idle_filler));
}

void ObservedExchange::Write(std::string_view bytes) {
  body_bytes_ += bytes.size();
  inner_->Write(bytes);
}

void ObservedExchange::EndStream(StreamEnd end) {
  const int status = gone() ? kClientGone : status_;
  inner_->EndStream(end);
  Log(status);
}

void ObservedExchange::Log(int status) {
  if (std::exchange(logged_, true)) return;
  log_->Write(line_, record(), status, body_bytes_);
}

}  // namespace millrace::api
