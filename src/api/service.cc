#include "api/service.h"

#include <fmt/format.h>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "api/answer_memory.h"
#include "api/anthropic_prepare.h"
#include "api/api_keys.h"
#include "api/cors.h"
#include "api/error_response.h"
#include "api/generation_job.h"
#include "api/health_generation.h"
#include "api/json_body.h"
#include "api/observed_exchange.h"
#include "api/openai_format.h"
#include "api/openai_prepare.h"
#include "api/prepare_generation.h"
#include "api/random_id.h"
#include "api/replay_store.h"
#include "api/request_timeout.h"
#include "api/responses_prepare.h"
#include "api/server_info.h"
#include "api/tokenize_endpoint.h"
#include "api/work_queue.h"
#include "base/check.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "engine/queue_estimate.h"

namespace millrace::api {
namespace {

constexpr const char* kChallenge = R"(Bearer realm="millrace")";

// Two, so that one prompt of a million tokens does not make the others wait for its encoding.
constexpr int kPrepareThreads = 2;

// What decoding a body takes beside it, at its most (measured): the JSON's values, the messages, the pieces
// of the prompt, and its tokens while they are found; text without a space is the worst. Short values are
// worse still, and there can be kBodyLimits.max_values of them.
uint64_t DecodingBytes(size_t body_bytes) {
  constexpr uint64_t kTextFactor = 24;
  constexpr uint64_t kValueFactor = 12;  // more, of bodies that are all values
  constexpr uint64_t kValueBytes = 2;    // "1,"
  return kTextFactor * body_bytes +
         kValueFactor * std::min<uint64_t>(body_bytes, kValueBytes * kBodyLimits.max_values);
}

// Of bodies that are decoded at once: one of the largest that is accepted and, on the other thread, one of a
// sixteenth, a prompt of half a million tokens by default. Larger ones wait for each other.
uint64_t SmallDecodingBytes(size_t max_body_bytes) {
  constexpr size_t kShare = 16;
  return DecodingBytes(max_body_bytes / kShare);
}
uint64_t AllDecodingBytes(size_t max_body_bytes) {
  return DecodingBytes(max_body_bytes) + (kPrepareThreads - 1) * SmallDecodingBytes(max_body_bytes);
}

// One request on its way through the service.
struct Call {
  HttpRequest request;
  std::shared_ptr<Exchange> exchange;
  RequestOrigin origin;
  std::string path_rest;  // behind a route's prefix
};

// The client's X-Request-Id if it is one that can be logged and sent back, else a fresh one.
std::string ChooseRequestId(const HttpRequest& request) {
  constexpr size_t kMaxBytes = 128;
  const std::string_view given = FindHeader(request.headers, "X-Request-Id");
  const bool usable = !given.empty() && given.size() <= kMaxBytes &&
                      std::ranges::all_of(given, [](char c) { return c > ' ' && c <= '~'; });
  return usable ? std::string(given) : RandomHexId();
}

// %2F and the like; a malformed escape stays as it is.
std::string PercentDecoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    if (escape) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string StatusJson(std::string_view status) {
  boost::json::object body;
  body["status"] = status;
  return boost::json::serialize(body);
}

// Plan beside actual, by name.
boost::json::object MemoryJson(const MemoryLedger& ledger) {
  boost::json::object accounts;
  for (const MemoryAccount* account : ledger.accounts()) {
    accounts[account->name()] = {{"planned_bytes", account->planned_bytes()},
                                 {"live_bytes", account->live_bytes()},
                                 {"peak_bytes", account->peak_bytes()}};
  }
  const ProcessMemory process = ReadProcessMemory();
  return {{"accounts", std::move(accounts)},
          {"process_anonymous_bytes", process.anonymous_bytes},
          {"process_file_bytes", process.file_bytes}};
}

}  // namespace

struct Service::Impl {
  Impl(engine::Engine& engine_in, const text::ChatEncoder& encoder, ServiceOptions options_in,
       MemoryLedger* ledger_in)
      : engine(engine_in),
        ledger(ledger_in),
        options(std::move(options_in)),
        accounts(PlanMemory(options, engine.max_model_len(), options.max_num_seqs), ledger_in),
        answers(options.max_answers_bytes, engine.max_model_len(), accounts.answers),
        replays(options.replay_bytes, accounts.remembered),
        model{encoder,
              options.served_model_names,
              "millrace-" + options.version,
              engine.max_model_len(),
              engine.vocab_size(),
              options.default_max_tokens,
              std::chrono::duration_cast<std::chrono::seconds>(
                  std::chrono::system_clock::now().time_since_epoch())
                  .count(),
              options.replay_bytes > 0 ? &replays : nullptr,
              options.chat_defaults},
        info{options.version, options.model_path, options.max_num_seqs, options.max_queue},
        metrics(options.served_model_names.front(), engine, ledger_in),
        keys(options.api_keys),
        cors(options.cors_origins),
        access_log(std::make_shared<AccessLog>(options.access_log)),
        prepare(kPrepareThreads, static_cast<size_t>(options.max_preparing),
                SmallDecodingBytes(options.max_body_bytes)) {
    metrics.SetReplayStats([this] { return replays.stats(); });
  }

  // Of PlanMemory's lines; null without a ledger.
  struct Accounts {
    Accounts(const std::vector<PlannedMemory>& plan, MemoryLedger* ledger) {
      if (ledger == nullptr) return;
      MemoryAccount** const all[] = {&decoding, &answers, &remembered};
      for (size_t i = 0; i < std::size(all); ++i) *all[i] = &ledger->Open(plan[i].name, plan[i].bytes);
    }
    MemoryAccount* decoding = nullptr;
    MemoryAccount* answers = nullptr;
    MemoryAccount* remembered = nullptr;
  };

  using Handler = void (Impl::*)(Call);
  struct Route : Endpoint {
    Handler handler;
  };
  // HEAD goes where GET goes.
  static std::span<const Route> Routes();

  void Dispatch(Call call);
  const Route* FindRoute(Call& call, std::string& allowed) const;
  bool NeedsKey(const HttpRequest& request) const;
  static bool AnswersWhileDraining(const Route& route);
  std::optional<ApiError> CheckKey(const HttpRequest& request) const;
  HttpHeaders CommonHeaders(const HttpRequest& request, const std::string& request_id) const;
  void Preflight(const Call& call);
  void LogRefusal(const HttpRequest& head, const std::string& request_id, const ApiError& error, int status);
  void Respond(const Call& call, HttpResponse response);
  void RespondError(const Call& call, const ApiError& error, HttpHeaders headers = {});
  void RespondJson(const Call& call, std::string body, int status = 200);

  // Runs `work` on a thread of the service, then what it returns on the exchange's. Answers 429 when too much
  // waits.
  using Then = std::function<void(const Call&)>;
  void Work(Call call, std::function<Then(const Call&)> work);

  using Prepared = std::variant<PreparedGeneration, ApiError>;
  using PrepareFn = Prepared (*)(const ServedModel&, const RequestOrigin&, std::string_view);
  void Generate(Call call, PrepareFn fn);
  void StartPrepared(const Call& call, Prepared& prepared);

  using AnswerFn = std::variant<std::string, ApiError> (*)(const ServedModel&, std::string_view);
  void AnswerBody(Call call, AnswerFn fn);

  void Chat(Call call) { Generate(std::move(call), PrepareChat); }
  void Completion(Call call) { Generate(std::move(call), PrepareCompletion); }
  void Messages(Call call) { Generate(std::move(call), PrepareMessages); }
  void CountTokens(Call call) { AnswerBody(std::move(call), CountMessageTokens); }
  void Responses(Call call) { Generate(std::move(call), PrepareResponses); }
  void Tokenize(Call call) { AnswerBody(std::move(call), AnswerTokenize); }
  void Detokenize(Call call) { AnswerBody(std::move(call), AnswerDetokenize); }
  void ListModels(Call call);
  void GetModel(Call call);
  void Health(Call call);
  void Live(Call call) { RespondJson(call, StatusJson("alive")); }
  void HealthGenerate(Call call);
  void Load(Call call);
  void Ready(Call call);
  void Version(Call call);
  void DescribeServer(Call call) { RespondJson(call, ServerInfoJson(info, model, !draining.load())); }
  void DescribeModel(Call call) { RespondJson(call, ModelInfoJson(info, model)); }
  void ServeMetrics(Call call);

  engine::Engine& engine;
  const MemoryLedger* const ledger;
  const ServiceOptions options;
  const Accounts accounts;
  AnswerBudget answers;
  ReplayStore replays;
  const ServedModel model;
  const ServerInfo info;
  Metrics metrics;
  const ApiKeys keys;
  const CorsPolicy cors;
  const std::shared_ptr<const AccessLog> access_log;
  std::atomic<bool> draining{false};
  WorkQueue prepare;  // last: its threads use the rest
};

// Probes carry no keys.
constexpr bool kOpen = false;

// What probes say while the server drains.
constexpr std::string_view kShuttingDown = "shutting down";
constexpr std::string_view kShutdownReason =
    "the server was told to stop: what is under way may finish, no new request is taken";

std::span<const Service::Impl::Route> Service::Impl::Routes() {
  static constexpr Route kRoutes[] = {
      {{"POST", "/v1/chat/completions"}, &Impl::Chat},
      {{"POST", "/v1/completions"}, &Impl::Completion},
      {{"POST", "/v1/messages"}, &Impl::Messages},
      {{"POST", "/v1/messages/count_tokens"}, &Impl::CountTokens},
      {{"POST", "/v1/responses"}, &Impl::Responses},
      {{"GET", "/v1/models"}, &Impl::ListModels},
      {{"GET", "/v1/models/"}, &Impl::GetModel},
      {{"GET", "/health", kOpen}, &Impl::Health},
      {{"GET", "/healthz", kOpen}, &Impl::Health},
      {{"GET", "/live", kOpen}, &Impl::Live},
      {{"GET", "/livez", kOpen}, &Impl::Live},
      {{"GET", "/ping", kOpen}, &Impl::Live},
      {{"POST", "/ping", kOpen}, &Impl::Live},
      {{"GET", "/ready", kOpen}, &Impl::Ready},
      {{"GET", "/readyz", kOpen}, &Impl::Ready},
      {{"POST", "/tokenize"}, &Impl::Tokenize},
      {{"POST", "/detokenize"}, &Impl::Detokenize},
      {{"GET", "/health_generate"}, &Impl::HealthGenerate},
      {{"GET", "/load"}, &Impl::Load},
      {{"GET", "/server_info"}, &Impl::DescribeServer},
      {{"GET", "/get_server_info"}, &Impl::DescribeServer},
      {{"GET", "/model_info"}, &Impl::DescribeModel},
      {{"GET", "/get_model_info"}, &Impl::DescribeModel},
      {{"GET", "/version"}, &Impl::Version},
      {{"GET", "/metrics"}, &Impl::ServeMetrics},
  };
  return kRoutes;
}

// Probes, and what tells how the drain goes on.
bool Service::Impl::AnswersWhileDraining(const Route& route) {
  return !route.needs_key || route.handler == &Impl::ServeMetrics || route.handler == &Impl::DescribeServer;
}

void Service::Impl::Dispatch(Call call) {
  if (cors.IsPreflight(call.request)) return Preflight(call);
  if (const std::optional<ApiError> error = CheckKey(call.request)) return RespondError(call, *error);
  std::string allowed;
  const Route* const route = FindRoute(call, allowed);
  if (route != nullptr && draining.load() && !AnswersWhileDraining(*route)) {
    return RespondError(
        call, {ApiErrorKind::kDraining, "The server is shutting down and takes no new requests.", ""});
  }
  if (route != nullptr) return (this->*route->handler)(std::move(call));
  const std::string asked = fmt::format("{} {}", call.request.method, call.request.path);
  if (allowed.empty()) {
    return RespondError(call,
                        {ApiErrorKind::kRouteNotFound, fmt::format("Unknown request URL: {}.", asked), ""});
  }
  allowed += ", OPTIONS";
  if (call.request.method == "OPTIONS") {
    HttpResponse response;
    response.status = 204;
    response.content_type.clear();
    response.headers.emplace_back("Allow", allowed);
    return Respond(call, std::move(response));
  }
  RespondError(call,
               {ApiErrorKind::kMethodNotAllowed, fmt::format("Not allowed: {}. Use {}.", asked, allowed), ""},
               {{"Allow", allowed}});
}

void Service::Impl::Preflight(const Call& call) {
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  response.headers = cors.PreflightHeaders(call.request);
  Respond(call, std::move(response));
}

// Also for paths that do not exist: what does is told to who has a key.
bool Service::Impl::NeedsKey(const HttpRequest& request) const {
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  for (const Route& route : Routes())
    if (!route.needs_key && route.path == request.path && route.method == method) return false;
  return true;
}

std::optional<ApiError> Service::Impl::CheckKey(const HttpRequest& request) const {
  if (keys.Open(request.headers) || !NeedsKey(request)) return std::nullopt;
  return ApiError{
      ApiErrorKind::kUnauthorized,
      "The API key is missing or wrong. Send one that this server knows as 'Authorization: Bearer "
      "KEY' or 'x-api-key: KEY'.",
      ""};
}

HttpHeaders Service::Impl::CommonHeaders(const HttpRequest& request, const std::string& request_id) const {
  HttpHeaders headers = cors.HeadersFor(request);
  headers.emplace_back("X-Request-Id", request_id);
  // Under the name that the clients of this dialect look for.
  if (DialectOf(request.path) == Dialect::kAnthropic) headers.emplace_back("request-id", request_id);
  return headers;
}

// `allowed`: the methods of the path, when none is the request's.
const Service::Impl::Route* Service::Impl::FindRoute(Call& call, std::string& allowed) const {
  const std::string_view path = call.request.path;
  const std::string_view method =
      call.request.method == "HEAD" ? "GET" : std::string_view(call.request.method);
  for (const Route& route : Routes()) {
    const bool is_prefix = route.path.ends_with('/');
    const bool matches =
        is_prefix ? path.starts_with(route.path) && path.size() > route.path.size() : path == route.path;
    if (!matches) continue;
    if (route.method == method) {
      call.path_rest = is_prefix ? path.substr(route.path.size()) : "";
      return &route;
    }
    allowed += allowed.empty() ? "" : ", ";
    allowed += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  return nullptr;
}

void Service::Impl::Respond(const Call& call, HttpResponse response) {
  call.exchange->Send(std::move(response));
}

void Service::Impl::RespondError(const Call& call, const ApiError& error, HttpHeaders headers) {
  RequestRecord& record = call.exchange->record();
  record.error_code = error.code();
  record.error_param = error.param;
  if (error.kind == ApiErrorKind::kUnauthorized) headers.emplace_back("WWW-Authenticate", kChallenge);
  Respond(call, ErrorResponse(error, std::move(headers), {call.origin.dialect, call.origin.request_id}));
}

void Service::Impl::LogRefusal(const HttpRequest& head, const std::string& request_id, const ApiError& error,
                               int status) {
  metrics.OnResponse(status);
  RequestRecord record;
  record.error_code = error.code();
  access_log->Write({request_id, head.method, head.path, std::chrono::steady_clock::now()}, record, status,
                    0);
}

void Service::Impl::RespondJson(const Call& call, std::string body, int status) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  Respond(call, std::move(response));
}

void Service::Impl::Work(Call call, std::function<Then(const Call&)> work) {
  const auto shared_call = std::make_shared<Call>(std::move(call));
  const uint64_t cost = DecodingBytes(shared_call->request.body.size());
  const auto task = [this, shared_call, work, cost] {
    Then then;
    const HeldBytes decoding(accounts.decoding, cost);
    // A prompt that memory does not suffice for costs its own request, not the server.
    try {
      then = work(*shared_call);
    } catch (const std::exception& error) {
      then = [this, what = std::string(error.what())](const Call& failed) {
        RespondError(failed, {ApiErrorKind::kInternal,
                              fmt::format("The request could not be prepared: {}.", what), ""});
      };
    }
    shared_call->request.DropBody();
    shared_call->exchange->Post([shared_call, then = std::move(then)] {
      if (!shared_call->exchange->gone()) then(*shared_call);
    });
  };
  const std::optional<WorkQueue::Ticket> ticket = prepare.Add(task, cost);
  if (!ticket) {
    return RespondError(*shared_call,
                        {ApiErrorKind::kQueueFull,
                         fmt::format("The queue is full: {} requests wait to be decoded; retry shortly.",
                                     options.max_preparing),
                         "", std::nullopt, engine::RetryAfterSeconds(engine.stats())});
  }
  // With the client its body goes, and its place in the queue.
  shared_call->exchange->SetOnGone([this, ticket = *ticket] { prepare.Remove(ticket); });
}

void Service::Impl::Generate(Call call, PrepareFn fn) {
  const auto deadline = AnswerDeadline(call.request, call.origin.arrival, options.request_timeout_seconds);
  if (const ApiError* const error = std::get_if<ApiError>(&deadline)) return RespondError(call, *error);
  call.origin.deadline = std::get<0>(deadline);
  Work(std::move(call), [this, fn](const Call& working) -> Then {
    const auto prepared = std::make_shared<Prepared>(fn(model, working.origin, working.request.body));
    return [this, prepared](const Call& done) { StartPrepared(done, *prepared); };
  });
}

void Service::Impl::AnswerBody(Call call, AnswerFn fn) {
  Work(std::move(call), [this, fn](const Call& working) -> Then {
    return [this, answer = fn(model, working.request.body)](const Call& done) {
      if (const ApiError* const error = std::get_if<ApiError>(&answer)) return RespondError(done, *error);
      RespondJson(done, std::get<std::string>(answer));
    };
  });
}

// On the exchange's thread.
void Service::Impl::StartPrepared(const Call& call, Prepared& prepared) {
  if (const ApiError* const error = std::get_if<ApiError>(&prepared)) return RespondError(call, *error);
  PreparedGeneration& generation = std::get<PreparedGeneration>(prepared);
  StartGeneration({engine, model.encoder.tokenizer(), metrics, answers}, std::move(generation),
                  call.exchange);
}

void Service::Impl::ListModels(Call call) {
  RespondJson(call, OpenAiModelListJson(model.names, model.created, model.max_model_len));
}

void Service::Impl::GetModel(Call call) {
  const std::string name = PercentDecoded(call.path_rest);
  if (model.Knows(name)) return RespondJson(call, OpenAiModelJson(name, model.created, model.max_model_len));
  RespondError(call, {ApiErrorKind::kModelNotFound,
                      fmt::format("The model '{}' does not exist. This server serves '{}'.", name,
                                  fmt::join(model.names, "', '")),
                      "model"});
}

// Answered from counters, whatever the engine is doing; 200 as long as requests are taken, because a server
// that computes is not ill.
void Service::Impl::Health(Call call) {
  const engine::EngineStats stats = engine.stats();
  const bool busy = stats.running > 0 || stats.waiting > 0;
  boost::json::object body;
  const bool ending = draining.load();
  body["status"] = ending ? kShuttingDown : "ok";
  if (ending) body["reason"] = kShutdownReason;
  body["state"] = stats.stuck ? "stuck" : busy ? "busy" : "idle";
  body["draining"] = ending;
  body["running"] = stats.running;
  body["waiting"] = stats.waiting;
  body["steps"] = stats.steps_total;
  body["last_step_seconds"] = stats.last_step_seconds;
  body["current_step_age_seconds"] = stats.current_step_age_seconds;
  body["seconds_since_progress"] = stats.seconds_since_progress;
  body["queue_seconds"] = engine::QueueSeconds(stats).value_or(0);
  if (ledger != nullptr) body["memory"] = MemoryJson(*ledger);
  RespondJson(call, boost::json::serialize(body), ending ? 503 : 200);
}

// While others' tokens come, they are the proof and no probe stands in the queue; an idle engine makes one.
void Service::Impl::HealthGenerate(Call call) {
  const engine::EngineStats stats = engine.stats();
  if (stats.stuck) return RespondJson(call, StatusJson("stuck"), 503);
  if (stats.running > 0) return RespondJson(call, StatusJson("busy"));
  AnswerWithOneToken(engine, model.encoder.control_ids().bos, call.exchange);
}

void Service::Impl::Load(Call call) {
  const engine::EngineStats stats = engine.stats();
  boost::json::object body;
  body["server_load"] = stats.running + stats.waiting;
  RespondJson(call, boost::json::serialize(body));
}

void Service::Impl::Ready(Call call) {
  boost::json::object body;
  if (draining.load()) {
    body["status"] = kShuttingDown;
    body["reason"] = kShutdownReason;
    return RespondJson(call, boost::json::serialize(body), 503);
  }
  const engine::EngineStats stats = engine.stats();
  if (!stats.stuck) return RespondJson(call, StatusJson("ready"));
  body["status"] = "stuck";
  body["reason"] = fmt::format("the engine has made no progress for {:.0f} s", stats.seconds_since_progress);
  RespondJson(call, boost::json::serialize(body), 503);
}

void Service::Impl::Version(Call call) {
  boost::json::object body;
  body["version"] = options.version;
  RespondJson(call, boost::json::serialize(body));
}

void Service::Impl::ServeMetrics(Call call) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics.Serialize();
  Respond(call, std::move(response));
}

Service::Service(engine::Engine& engine, const text::ChatEncoder& encoder, ServiceOptions options,
                 MemoryLedger* ledger) {
  MILLRACE_CHECK(!options.served_model_names.empty(), "a service without a name for its model");
  impl_ = std::make_unique<Impl>(engine, encoder, std::move(options), ledger);
}

Service::~Service() = default;

std::vector<PlannedMemory> Service::PlanMemory(const ServiceOptions& options, int64_t max_model_len,
                                               int max_num_seqs) {
  return {{"requests being decoded", AllDecodingBytes(options.max_body_bytes), "max-body-size"},
          {"answers in progress",
           AnswerBudget::PlanBytes(options.max_answers_bytes, max_model_len, max_num_seqs, options.max_queue),
           "max-answers-size, max-num-seqs x max-model-len, max-queue"},
          {"answers remembered", options.replay_bytes, "replay-size"}};
}

void Service::Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  Call call;
  call.origin = {ChooseRequestId(request), std::chrono::steady_clock::now(), DialectOf(request.path)};
  call.exchange = std::make_shared<ObservedExchange>(
      std::move(exchange),
      RequestLine{call.origin.request_id, request.method, request.path, call.origin.arrival},
      impl_->CommonHeaders(request, call.origin.request_id), impl_->access_log, impl_->metrics);
  call.request = std::move(request);
  impl_->Dispatch(std::move(call));
}

std::optional<HttpResponse> Service::Admit(const HttpRequest& head) {
  const std::optional<ApiError> error = impl_->CheckKey(head);
  if (!error) return std::nullopt;
  const std::string request_id = ChooseRequestId(head);
  HttpHeaders headers = impl_->CommonHeaders(head, request_id);
  headers.emplace_back("WWW-Authenticate", kChallenge);
  HttpResponse response = ErrorResponse(*error, std::move(headers), {DialectOf(head.path), request_id});
  impl_->LogRefusal(head, request_id, *error, response.status);
  return response;
}

void Service::OnRefused(const HttpRequest& head, const ApiError& error) {
  impl_->LogRefusal(head, ChooseRequestId(head), error, error.status(DialectOf(head.path)));
}

std::vector<Endpoint> Service::Endpoints() {
  const auto routes = Impl::Routes();
  return {routes.begin(), routes.end()};
}

Metrics& Service::metrics() {
  return impl_->metrics;
}

void Service::BeginDrain() {
  impl_->draining.store(true);
}

}  // namespace millrace::api
