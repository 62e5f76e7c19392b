#include "api/connect.h"

#include <memory>
#include <optional>
#include <utility>

namespace millrace::api {

Status Connect(HttpServer& http, Service& service) {
  service.metrics().SetHttpStats([&http] { return http.stats(); });
  HttpHooks hooks;
  hooks.admit = [&service](const HttpRequest& head) { return service.Admit(head); };
  hooks.refused = [&service](const HttpRequest& head, const ApiError& error) {
    service.OnRefused(head, error);
  };
  return http.Serve(
      [&service](HttpRequest request, std::shared_ptr<Exchange> exchange) {
        service.Handle(std::move(request), std::move(exchange));
      },
      std::move(hooks));
}

}  // namespace millrace::api
