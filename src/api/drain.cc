#include "api/drain.h"

namespace millrace::api {

void DrainServer(HttpServer& http, Service& service, engine::Engine& engine,
                 std::chrono::steady_clock::time_point deadline) {
  // The last answers are written by now or within this of the deadline: their bytes only have to leave.
  constexpr auto kFlushTime = std::chrono::seconds(2);
  service.BeginDrain();
  http.BeginDrain();
  engine.Drain(deadline);
  http.Shutdown(std::chrono::steady_clock::now() + kFlushTime);
}

}  // namespace millrace::api
