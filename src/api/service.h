#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/exchange.h"
#include "api/metrics.h"
#include "base/ledger.h"
#include "engine/engine.h"
#include "text/chat_prompt.h"

namespace millrace::api {

struct ServiceOptions {
  std::vector<std::string> served_model_names;  // at least one; the first is the default
  int64_t default_max_tokens = 65536;           // of requests that name no limit; 0: the rest of the context
  int max_preparing = 256;                      // requests that wait to be decoded; more are refused with 429
  size_t replay_bytes = size_t{128} << 20;      // answers that are remembered for later prompts; 0: none
  std::string version;
  std::chrono::seconds stuck_after{300};  // a step that runs longer makes /health say "stuck"
};

// The endpoints, apart from any transport: decodes requests, answers them through their exchanges.
class Service {
 public:
  // All references outlive the object; ledger may be nullptr.
  Service(engine::Engine& engine, const text::ChatEncoder& encoder, ServiceOptions options,
          const MemoryLedger* ledger);
  // No exchange's thread may be inside Handle, run a task that Handle has posted, or call back that a client
  // is gone.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Takes one request; on the exchange's thread. Returns at once: what takes long is done on threads of the
  // service, and what is generated comes from the engine's.
  void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  Metrics& metrics();

  // From now on new generations are refused with 503 and /ready says so. Any thread.
  void BeginDrain();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::api
