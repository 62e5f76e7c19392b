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

void ObservedExchange::AddHeaders(HttpResponse& response) const {
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
}

SentAnswer ObservedExchange::Send(HttpResponse response) {
  AddHeaders(response);
  const bool told = !gone();
  const SentAnswer sent = inner_->Send(std::move(response));
  metrics_.OnResponse(sent.status);
  if (!sent.error_code.empty()) record().error_code = sent.error_code;
  body_bytes_ = told ? sent.body_bytes : 0;
  Log(told ? sent.status : kClientGone);
  return sent;
}

void ObservedExchange::BeginStream(HttpResponse head, std::function<std::string()> idle_filler) {
  metrics_.OnResponse(head.status);
  AddHeaders(head);
  status_ = head.status;
  inner_->BeginStream(std::move(head), std::move(idle_filler));
}

bool ObservedExchange::Write(std::string_view bytes) {
  const bool queued = inner_->Write(bytes);
  if (queued) body_bytes_ += bytes.size();
  return queued;
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
