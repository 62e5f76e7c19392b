#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/access_log.h"
#include "api/api_error.h"
#include "api/chat_defaults.h"
#include "api/exchange.h"
#include "api/metrics.h"
#include "base/ledger.h"
#include "base/planned_memory.h"
#include "engine/engine.h"
#include "text/chat_prompt.h"

namespace millrace::api {

struct ServiceOptions {
  std::vector<std::string> served_model_names;  // at least one; the first is the default
  int64_t default_max_tokens = 65536;           // of requests that name no limit; 0: the rest of the context
  int max_preparing = 256;                      // requests that wait to be decoded; more are refused with 429
  size_t replay_bytes = size_t{128} << 20;      // answers that are remembered for later prompts; 0: none
  double request_timeout_seconds = 0;           // for an answer, from its request's arrival; 0: any
  std::string version;
  std::vector<std::string> api_keys = {};      // none: open to everyone; see ApiKeys
  std::vector<std::string> cors_origins = {};  // none: web pages may not read answers; see CorsPolicy
  AccessLogOptions access_log = {};
  ChatDefaults chat_defaults = {};
  std::string model_path = {};  // these three as /get_server_info tells them
  int max_num_seqs = 0;
  int max_queue = 0;
  size_t max_answers_bytes = size_t{256}
                             << 20;          // of answers under way beyond AnswerBudget's part by the plan
  size_t max_body_bytes = size_t{32} << 20;  // of a request, as HttpServerOptions has it
};

// A row of the table of endpoints.
struct Endpoint {
  std::string_view method;
  std::string_view path;  // ending in '/': whatever follows it, if anything does
  bool needs_key = true;  // when the server has keys
};

// The endpoints, apart from any transport: decodes requests, answers them through their exchanges.
class Service {
 public:
  // All references outlive the object; ledger may be nullptr. Opens an account for each line of PlanMemory.
  Service(engine::Engine& engine, const text::ChatEncoder& encoder, ServiceOptions options,
          MemoryLedger* ledger);
  // No exchange's thread may be inside Handle, run a task that Handle has posted, or call back that a client
  // is gone.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // The most that a service with these options holds over an engine with these limits: requests being
  // decoded, answers in progress, answers remembered.
  static std::vector<PlannedMemory> PlanMemory(const ServiceOptions& options, int64_t max_model_len,
                                               int max_num_seqs);

  // Takes one request; on the exchange's thread. Returns at once: what takes long is done on threads of the
  // service, and what is generated comes from the engine's.
  void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  // The answer to a request that its headers are reason enough to refuse (it lacks the key), so that its body
  // need not be read. On the exchange's thread.
  std::optional<HttpResponse> Admit(const HttpRequest& head);
  // The transport has refused a request; logs and counts it. On the exchange's thread.
  void OnRefused(const HttpRequest& head, const ApiError& error);

  static std::vector<Endpoint> Endpoints();

  Metrics& metrics();

  // From now on new generations are refused with 503 and /ready says so. Any thread.
  void BeginDrain();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::api
