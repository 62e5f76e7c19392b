#include "api/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "base/process_memory.h"
#include "engine/queue_estimate.h"

namespace millrace::api {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

using Labels = std::vector<ClientMetric::Label>;

// A prompt of a million tokens takes its time on a small machine: up to half an hour to the first token.
const prometheus::Histogram::BucketBoundaries kFirstTokenBuckets = {
    0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 900, 1200, 1800};
const prometheus::Histogram::BucketBoundaries kTokenGapBuckets = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2.5, 5, 10, 30};
const prometheus::Histogram::BucketBoundaries kRequestBuckets = {
    0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1200, 1800, 3600, 7200};

const prometheus::Histogram::BucketBoundaries kTokenCountBuckets = {
    1,    2,    5,      10,     20,     50,      100,     200,     500,      1000,
    2000, 5000, 10'000, 20'000, 50'000, 100'000, 200'000, 500'000, 1'000'000};
const prometheus::Histogram::BucketBoundaries kChoiceBuckets = {1, 2, 5, 10, 20, 50, 100};

// One number taken from a snapshot when the metrics are asked for.
template <typename Snapshot>
struct Reading {
  const char* name;
  const char* help;
  MetricType type;
  double (*value)(const Snapshot&);
};

template <auto member>
constexpr auto Field = [](const auto& snapshot) { return static_cast<double>(snapshot.*member); };

using engine::EngineStats;

constexpr auto kRequests = [](const EngineStats& stats) {
  return static_cast<double>(stats.finished_stop + stats.finished_length + stats.finished_repetition +
                             stats.finished_timeout + stats.finished_cancelled + stats.finished_error);
};

constexpr auto kPoolUsage = [](const EngineStats& stats) {
  const engine::CacheStats& cache = stats.cache;
  if (cache.capacity_tokens == 0) return 0.0;
  return static_cast<double>(cache.in_use_tokens) / static_cast<double>(cache.capacity_tokens);
};

constexpr Reading<EngineStats> kEngineReadings[] = {
    {"vllm:num_requests_running", "Sequences that hold a slot of the engine.", MetricType::Gauge,
     Field<&EngineStats::running>},
    {"vllm:num_requests_waiting", "Sequences in the queue.", MetricType::Gauge, Field<&EngineStats::waiting>},
    {"vllm:prompt_tokens_total", "Prompt tokens computed.", MetricType::Counter,
     Field<&EngineStats::prompt_tokens_total>},
    {"vllm:generation_tokens_total", "Tokens generated.", MetricType::Counter,
     Field<&EngineStats::generation_tokens_total>},
    {"vllm:num_preemptions_total", "Sequences that gave their memory to earlier ones and went on later.",
     MetricType::Counter, Field<&EngineStats::preemptions_total>},
    {"vllm:kv_cache_usage_perc", "Share of the KV pool that sequences hold.", MetricType::Gauge, kPoolUsage},
    {"vllm:prefix_cache_queries_total", "Tokens that sequences were begun with.", MetricType::Counter,
     Field<&EngineStats::prefix_query_tokens>},
    {"vllm:prefix_cache_hits_total", "Of these, tokens that the prefix cache gave.", MetricType::Counter,
     Field<&EngineStats::prefix_hit_tokens>},
    {"sglang:token_usage", "Share of the KV pool that sequences hold.", MetricType::Gauge, kPoolUsage},
    {"sglang:num_used_tokens", "Tokens of the KV pool that sequences hold.", MetricType::Gauge,
     [](const EngineStats& stats) { return static_cast<double>(stats.cache.in_use_tokens); }},
    {"sglang:cached_tokens_total", "Tokens that the prefix cache gave.", MetricType::Counter,
     Field<&EngineStats::prefix_hit_tokens>},
    {"millrace_prefix_cache_replayed_tokens_total",
     "Tokens whose pages the prefix cache had and whose window state it had not: read again.",
     MetricType::Counter, Field<&EngineStats::prefix_replay_tokens>},
    {"millrace_prefix_cache_waits_total", "Requests that waited for another to read what both begin with.",
     MetricType::Counter, Field<&EngineStats::prompt_waits_total>},
    {"millrace_prefix_cache_reusable_tokens",
     "Tokens that no sequence holds, kept for prompts that begin alike.", MetricType::Gauge,
     [](const EngineStats& stats) { return static_cast<double>(stats.cache.reusable_tokens); }},
    {"millrace_prefix_cache_tails", "Places with window state to go on from.", MetricType::Gauge,
     [](const EngineStats& stats) { return static_cast<double>(stats.cache.tails); }},
    {"millrace_prefix_cache_evicted_tokens_total", "Cached tokens that others needed the room of.",
     MetricType::Counter,
     [](const EngineStats& stats) { return static_cast<double>(stats.cache.evicted_tokens); }},
    {"millrace_prefix_cache_evicted_tails_total", "Tails that others needed the room of.",
     MetricType::Counter,
     [](const EngineStats& stats) { return static_cast<double>(stats.cache.evicted_tails); }},
    {"sglang:num_running_reqs", "Sequences that hold a slot of the engine.", MetricType::Gauge,
     Field<&EngineStats::running>},
    {"sglang:num_queue_reqs", "Sequences in the queue.", MetricType::Gauge, Field<&EngineStats::waiting>},
    {"sglang:prompt_tokens_total", "Prompt tokens computed.", MetricType::Counter,
     Field<&EngineStats::prompt_tokens_total>},
    {"sglang:generation_tokens_total", "Tokens generated.", MetricType::Counter,
     Field<&EngineStats::generation_tokens_total>},
    {"sglang:num_requests_total", "Sequences that have ended.", MetricType::Counter, kRequests},
    {"sglang:num_aborted_requests_total", "Sequences that were cancelled.", MetricType::Counter,
     Field<&EngineStats::finished_cancelled>},
    {"millrace_engine_steps_total", "Batches that the model has run.", MetricType::Counter,
     Field<&EngineStats::steps_total>},
    {"millrace_engine_tokens_per_second", "Of prompts and generated, in the last half minute of steps.",
     MetricType::Gauge, Field<&EngineStats::tokens_per_second>},
    {"millrace_engine_queue_seconds", "When what waits now will have been worked off; 0: nothing waits.",
     MetricType::Gauge, [](const EngineStats& stats) { return engine::QueueSeconds(stats).value_or(0); }},
    {"millrace_engine_step_age_seconds", "Since the running step began; 0 when idle. Growing: stuck.",
     MetricType::Gauge, Field<&EngineStats::current_step_age_seconds>},
    {"millrace_engine_last_step_seconds", "Of the step that ended last.", MetricType::Gauge,
     Field<&EngineStats::last_step_seconds>},
    {"millrace_engine_seconds_since_progress",
     "Since a step ended while there is work; 0 when idle. Growing: stuck, however busy it looks.",
     MetricType::Gauge, Field<&EngineStats::seconds_since_progress>},
    {"millrace_engine_stuck", "1 while that is longer than --stuck-after.", MetricType::Gauge,
     Field<&EngineStats::stuck>},
    {"millrace_watchdog_slow_steps_total", "Steps that took longer than --slow-step.", MetricType::Counter,
     Field<&EngineStats::slow_steps_total>},
    {"millrace_watchdog_stuck_total", "Times that the engine was found stuck.", MetricType::Counter,
     Field<&EngineStats::stuck_total>},
};

constexpr std::array<Reading<HttpServerStats>, 6> kHttpReadings = {{
    {"millrace_http_connections", "Open connections.", MetricType::Gauge,
     Field<&HttpServerStats::connections>},
    {"millrace_http_body_bytes", "Memory reserved for bodies that are being read or not yet decoded.",
     MetricType::Gauge, Field<&HttpServerStats::body_bytes>},
    {"millrace_http_refused_connections_total", "Connections turned away because of the limit.",
     MetricType::Counter, Field<&HttpServerStats::refused>},
    {"millrace_http_malformed_requests_total", "Requests refused before a handler saw them.",
     MetricType::Counter, Field<&HttpServerStats::malformed>},
    {"millrace_http_slow_readers_total", "Streams ended because their client did not read.",
     MetricType::Counter, Field<&HttpServerStats::slow_readers>},
    {"millrace_http_disconnects_total", "Answers that their client did not wait for.", MetricType::Counter,
     Field<&HttpServerStats::disconnected>},
}};

constexpr std::array<Reading<ReplayStore::Stats>, 4> kReplayReadings = {{
    {"millrace_replay_hits_total",
     "Assistant messages of requests that were repeated as they were generated.", MetricType::Counter,
     Field<&ReplayStore::Stats::hits>},
    {"millrace_replay_misses_total", "Assistant messages of requests that this server does not remember.",
     MetricType::Counter, Field<&ReplayStore::Stats::misses>},
    {"millrace_replay_answers", "Answers remembered for later prompts.", MetricType::Gauge,
     Field<&ReplayStore::Stats::answers>},
    {"millrace_replay_bytes", "Memory that these take.", MetricType::Gauge,
     Field<&ReplayStore::Stats::bytes>},
}};

constexpr std::array<Reading<MemoryAccount>, 3> kMemoryReadings = {{
    {"millrace_memory_planned_bytes", "Memory that the plan gives to the account.", MetricType::Gauge,
     [](const MemoryAccount& account) { return static_cast<double>(account.planned_bytes()); }},
    {"millrace_memory_live_bytes", "Memory that the account holds.", MetricType::Gauge,
     [](const MemoryAccount& account) { return static_cast<double>(account.live_bytes()); }},
    {"millrace_memory_peak_bytes", "The most memory that the account has held.", MetricType::Gauge,
     [](const MemoryAccount& account) { return static_cast<double>(account.peak_bytes()); }},
}};

constexpr std::array<Reading<ProcessMemory>, 2> kProcessReadings = {{
    {"millrace_process_anonymous_bytes", "Resident memory of the process's own.", MetricType::Gauge,
     Field<&ProcessMemory::anonymous_bytes>},
    {"millrace_process_file_bytes", "Resident pages of mapped files: weights, code.", MetricType::Gauge,
     Field<&ProcessMemory::file_bytes>},
}};

ClientMetric Sample(MetricType type, double value, Labels labels) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return metric;
}

template <typename Snapshot>
MetricFamily Family(const Reading<Snapshot>& reading) {
  return {reading.name, reading.help, reading.type, {}};
}

template <typename Readings, typename Snapshot>
void Append(const Readings& readings, const Snapshot& snapshot, const Labels& labels,
            std::vector<MetricFamily>& out) {
  for (const auto& reading : readings) {
    MetricFamily family = Family(reading);
    family.metric.push_back(Sample(reading.type, reading.value(snapshot), labels));
    out.push_back(std::move(family));
  }
}

// The engine counts steps by itself; their sum is that of their tokens.
MetricFamily StepTokens(const EngineStats& stats, const Labels& labels) {
  ClientMetric metric;
  metric.label = labels;
  uint64_t steps = 0;
  for (size_t i = 0; i < stats.steps_by_tokens.size(); ++i) {
    steps += stats.steps_by_tokens[i];
    const bool last = i == engine::kStepTokenBounds.size();
    metric.histogram.bucket.push_back({steps, last ? std::numeric_limits<double>::infinity()
                                                   : static_cast<double>(engine::kStepTokenBounds[i])});
  }
  metric.histogram.sample_count = steps;
  metric.histogram.sample_sum =
      static_cast<double>(stats.prompt_tokens_total + stats.generation_tokens_total);
  return {"vllm:iteration_tokens_total",
          "Tokens of a step, of prompts and generated.",
          MetricType::Histogram,
          {std::move(metric)}};
}

}  // namespace

struct Metrics::Impl {
  Impl(std::string model_name, const engine::Engine& engine_in, const MemoryLedger* ledger_in)
      : engine(engine_in),
        ledger(ledger_in),
        labels{{"model_name", std::move(model_name)}, {"engine", "0"}} {}

  prometheus::Labels RegistryLabels() const {
    prometheus::Labels map;
    for (const ClientMetric::Label& label : labels) map[label.name] = label.value;
    return map;
  }

  prometheus::Histogram& Histogram(const char* name, const char* help,
                                   const prometheus::Histogram::BucketBoundaries& buckets) {
    return prometheus::BuildHistogram()
        .Name(name)
        .Help(help)
        .Labels(RegistryLabels())
        .Register(registry)
        .Add({}, buckets);
  }

  const engine::Engine& engine;
  const MemoryLedger* const ledger;
  const Labels labels;
  std::function<HttpServerStats()> http_stats;
  std::function<ReplayStore::Stats()> replay_stats;
  prometheus::Registry registry;

  // One measure under the names of both servers whose dashboards are about.
  class Measure {
   public:
    Measure(Impl& impl, std::initializer_list<const char*> names, const char* help,
            const prometheus::Histogram::BucketBoundaries& buckets) {
      for (const char* name : names) histograms_.push_back(&impl.Histogram(name, help, buckets));
    }
    void Observe(double value) {
      for (prometheus::Histogram* histogram : histograms_) histogram->Observe(value);
    }

   private:
    std::vector<prometheus::Histogram*> histograms_;
  };

  Measure first_token{*this,
                      {"vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"},
                      "From a request's arrival to its first token.",
                      kFirstTokenBuckets};
  Measure token_gap{*this,
                    {"vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds",
                     "sglang:inter_token_latency_seconds"},
                    "Between two tokens of a sequence.",
                    kTokenGapBuckets};
  Measure request_time{*this,
                       {"vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds"},
                       "From a request's arrival to its end.",
                       kRequestBuckets};
  Measure queue_time{*this,
                     {"vllm:request_queue_time_seconds", "sglang:queue_time_seconds"},
                     "In the engine's queue.",
                     kRequestBuckets};
  Measure prefill_time{
      *this, {"vllm:request_prefill_time_seconds"}, "From admission to the first token.", kRequestBuckets};
  Measure decode_time{
      *this, {"vllm:request_decode_time_seconds"}, "From the first token to the end.", kRequestBuckets};
  Measure inference_time{
      *this, {"vllm:request_inference_time_seconds"}, "From admission to the end.", kRequestBuckets};
  Measure mean_token_gap{*this,
                         {"vllm:request_time_per_output_token_seconds"},
                         "Between the tokens of a sequence, on average.",
                         kTokenGapBuckets};
  Measure prompt_tokens{*this, {"vllm:request_prompt_tokens"}, "Tokens of a prompt.", kTokenCountBuckets};
  Measure generation_tokens{
      *this, {"vllm:request_generation_tokens"}, "Tokens of an answer.", kTokenCountBuckets};
  Measure max_tokens{*this,
                     {"vllm:request_max_num_generation_tokens", "vllm:request_params_max_tokens"},
                     "The most tokens that a request's answer may have.",
                     kTokenCountBuckets};
  Measure choices{*this, {"vllm:request_params_n"}, "Sequences of one request.", kChoiceBuckets};
  prometheus::Family<prometheus::Counter>& finished = prometheus::BuildCounter()
                                                          .Name("vllm:request_success_total")
                                                          .Help("Sequences that have ended, by reason.")
                                                          .Labels(RegistryLabels())
                                                          .Register(registry);
  prometheus::Family<prometheus::Counter>& responses = prometheus::BuildCounter()
                                                           .Name("millrace_http_responses_total")
                                                           .Help("HTTP answers, by status.")
                                                           .Register(registry);
};

Metrics::Metrics(std::string model_name, const engine::Engine& engine, const MemoryLedger* ledger)
    : impl_(std::make_unique<Impl>(std::move(model_name), engine, ledger)) {
  // A counter that appears with its first increment hides that increment from rate().
  for (const char* reason : {"stop", "length", "repetition", "timeout", "abort", "error"})
    impl_->finished.Add({{"finished_reason", reason}});
}

Metrics::~Metrics() = default;

void Metrics::SetHttpStats(std::function<HttpServerStats()> stats) {
  impl_->http_stats = std::move(stats);
}

void Metrics::SetReplayStats(std::function<ReplayStore::Stats()> stats) {
  impl_->replay_stats = std::move(stats);
}

void Metrics::OnFirstToken(double seconds_since_arrival) {
  impl_->first_token.Observe(seconds_since_arrival);
}

void Metrics::OnNextToken(double seconds_since_last) {
  impl_->token_gap.Observe(seconds_since_last);
}

void Metrics::OnRequest(size_t choices, int64_t max_tokens) {
  impl_->choices.Observe(static_cast<double>(choices));
  impl_->max_tokens.Observe(static_cast<double>(max_tokens));
}

void Metrics::OnFinished(std::string_view reason, double seconds_since_arrival,
                         const engine::FinishEvent& event) {
  impl_->finished.Add({{"finished_reason", std::string(reason)}}).Increment();
  impl_->request_time.Observe(seconds_since_arrival);
  const engine::RequestTimes& times = event.times;
  if (times.admitted == 0) return;  // it never left the queue
  impl_->queue_time.Observe(times.admitted);
  impl_->inference_time.Observe(times.finished - times.admitted);
  impl_->prompt_tokens.Observe(static_cast<double>(event.prompt_tokens));
  impl_->generation_tokens.Observe(static_cast<double>(event.generated_tokens));
  if (event.generated_tokens == 0) return;
  const double decode_seconds = times.finished - times.first_token;
  impl_->prefill_time.Observe(times.first_token - times.admitted);
  impl_->decode_time.Observe(decode_seconds);
  if (event.generated_tokens > 1)
    impl_->mean_token_gap.Observe(decode_seconds / static_cast<double>(event.generated_tokens - 1));
}

void Metrics::OnResponse(int status) {
  impl_->responses.Add({{"code", std::to_string(status)}}).Increment();
}

std::string Metrics::Serialize() const {
  std::vector<MetricFamily> families;
  const engine::EngineStats stats = impl_->engine.stats();
  Append(kEngineReadings, stats, impl_->labels, families);
  families.push_back(StepTokens(stats, impl_->labels));
  if (impl_->http_stats) Append(kHttpReadings, impl_->http_stats(), {}, families);
  if (impl_->replay_stats) Append(kReplayReadings, impl_->replay_stats(), {}, families);
  if (impl_->ledger != nullptr) {
    for (const auto& reading : kMemoryReadings) {
      MetricFamily family = Family(reading);
      for (const MemoryAccount* account : impl_->ledger->accounts())
        family.metric.push_back(
            Sample(reading.type, reading.value(*account), {{"account", account->name()}}));
      families.push_back(std::move(family));
    }
  }
  Append(kProcessReadings, ReadProcessMemory(), {}, families);
  std::vector<MetricFamily> recorded = impl_->registry.Collect();
  families.insert(families.end(), std::make_move_iterator(recorded.begin()),
                  std::make_move_iterator(recorded.end()));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace millrace::api
