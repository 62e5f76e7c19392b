#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "api/access_log.h"
#include "api/exchange.h"
#include "api/metrics.h"

namespace millrace::api {

// Another exchange, watched: adds the headers that every answer has, counts the answer and logs it at its end
// (if it never gets one, when the exchange is given up).
class ObservedExchange final : public Exchange {
 public:
  // `headers` are added to the answer's. `metrics` outlives the last call of Send and BeginStream; the object
  // may be destroyed after it, on any thread.
  ObservedExchange(std::shared_ptr<Exchange> inner, RequestLine line, HttpHeaders headers,
                   std::shared_ptr<const AccessLog> log, Metrics& metrics);
  ~ObservedExchange() override;

  void Post(std::function<void()> task) override { inner_->Post(std::move(task)); }
  SentAnswer Send(HttpResponse response) override;
  void BeginStream(HttpResponse head, std::function<std::string()> idle_filler) override;
  bool Write(std::string_view bytes) override;
  void EndStream(StreamEnd end) override;
  void SetOnGone(std::function<void()> on_gone) override { inner_->SetOnGone(std::move(on_gone)); }
  bool gone() const override { return inner_->gone(); }

 private:
  void AddHeaders(HttpResponse& response) const;
  void Log(int status);

  const std::shared_ptr<Exchange> inner_;
  const RequestLine line_;
  const HttpHeaders headers_;
  const std::shared_ptr<const AccessLog> log_;
  Metrics& metrics_;
  int status_ = kClientGone;
  uint64_t body_bytes_ = 0;
  bool logged_ = false;
};

}  // namespace millrace::api
