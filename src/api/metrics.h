#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "api/http_server.h"
#include "api/replay_store.h"
#include "base/ledger.h"
#include "engine/engine.h"

namespace millrace::api {

// What GET /metrics answers: names, labels and meanings of vLLM where it has them, so that its dashboards
// work, and our own under millrace_. Counters that the engine keeps are read when asked; the rest is recorded
// here. Any thread.
class Metrics {
 public:
  // `engine` and `ledger` (nullptr: no memory accounts) outlive the object.
  Metrics(std::string model_name, const engine::Engine& engine, const MemoryLedger* ledger);
  ~Metrics();

  // Adds the server's connection counters; call before it serves.
  void SetHttpStats(std::function<HttpServerStats()> stats);

  // Adds what the replay store counts; call before it serves.
  void SetReplayStats(std::function<ReplayStore::Stats()> stats);

  // One call for each request: how many sequences it asks for, and the most tokens that one may generate.
  void OnRequest(size_t choices, int64_t max_tokens);
  void OnFirstToken(double seconds_since_arrival);
  void OnNextToken(double seconds_since_last);
  // `reason`: "stop", "length", "repetition", "timeout", "abort" or "error"; one call for each choice.
  void OnFinished(std::string_view reason, double seconds_since_arrival, const engine::FinishEvent& event);
  void OnResponse(int status);

  // Prometheus text exposition format.
  std::string Serialize() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::api
