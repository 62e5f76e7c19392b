#include "loadgen/chat_client.h"

#include <boost/json.hpp>

#include <algorithm>
#include <utility>

#include "loadgen/run_loop.h"

namespace millrace::loadgen {

namespace asio = boost::asio;
namespace json = boost::json;

namespace {

constexpr const char* kChatPath = "/v1/chat/completions";
constexpr size_t kMaxErrorBytes = 64 << 10;
constexpr size_t kMaxAnswerBytes = size_t{256} << 20;

bool IsRetriable(const RequestRecord& record) {
  return record.failure && record.failure->kind == FailureKind::kHttpStatus &&
         (record.failure->status == 429 || record.failure->status == 503);
}

// Takes in the body of one answer, whatever it is.
class BodyTaker {
 public:
  BodyTaker(const ChatRequest& request, RequestRecord& record) : request_(request), record_(record) {}

  bool Take(const HttpReply& reply, std::string_view part) {
    n_bytes_ += part.size();
    if (n_bytes_ > kMaxAnswerBytes) {
      too_long_ = true;
      return false;
    }
    if (reply.status != 200 || !reply.content_type.starts_with("text/event-stream")) {
      other_body_.append(part.substr(0, kMaxErrorBytes - std::min(kMaxErrorBytes, other_body_.size())));
      return true;
    }
    const int n = reader_.Feed(part);
    const TimePoint now = Clock::now();
    for (int i = 0; i < n; ++i) {
      record_.text_times.push_back(now);
      if (request_.on_text) request_.on_text(now);
    }
    if (request_.leave_after_events &&
        static_cast<int>(record_.text_times.size()) >= *request_.leave_after_events)
      return false;
    return !reader_.failure();
  }

  // Fills `record` at the end of the exchange.
  void Finish(const HttpReply& reply) {
    record_.answer = reader_.answer();
    record_.usage = reader_.usage();
    if (reply.failure && !reader_.done()) {
      record_.failure = reply.failure;
    } else if (too_long_) {
      record_.failure = Failure{.kind = FailureKind::kMalformedEvent, .detail = "the answer never ends"};
    } else if (reader_.failure()) {
      record_.failure = reader_.failure();
    } else if (reply.left) {
      record_.left = true;
    } else if (reply.status != 200) {
      record_.failure =
          Failure{.kind = FailureKind::kHttpStatus, .status = reply.status, .detail = ErrorText(other_body_)};
    } else if (!reply.content_type.starts_with("text/event-stream")) {
      record_.failure = Failure{
          .kind = FailureKind::kMalformedEvent,
          .detail = "not an event stream but '" + reply.content_type + "': " + ErrorText(other_body_)};
    } else {
      reader_.End();
      record_.failure = reader_.failure();
    }
  }

 private:
  const ChatRequest& request_;
  RequestRecord& record_;
  ChatAnswerReader reader_;
  std::string other_body_;  // of errors
  size_t n_bytes_ = 0;
  bool too_long_ = false;
};

}  // namespace

std::string ChatClient::BodyOf(const ChatRequest& request) const {
  json::object body{{"model", options_.model},
                    {"messages", request.messages},
                    {"max_tokens", request.max_tokens},
                    {"temperature", request.temperature.value_or(options_.temperature)},
                    {"stream", true},
                    {"stream_options", {{"include_usage", true}}}};
  if (!request.tools.empty()) body["tools"] = request.tools;
  if (request.ignore_eos.value_or(options_.ignore_eos)) {
    body["ignore_eos"] = true;
    // Where it is known, the end token is not even chosen: a run of them would be tokens without text.
    body["min_tokens"] = request.max_tokens;
  }
  for (const auto& member : options_.extra_body) body[member.key()] = member.value();
  return json::serialize(body);
}

asio::awaitable<std::optional<double>> ChatClient::Try(const ChatRequest& request, const std::string& body,
                                                       RequestRecord& record) const {
  HttpAsk ask{
      .method = boost::beast::http::verb::post, .path = kChatPath, .body = body, .leave_at = std::nullopt};
  if (request.leave_after) ask.leave_at = Clock::now() + *request.leave_after;
  record.failure.reset();
  record.text_times.clear();
  BodyTaker taker(request, record);
  const HttpClient::BodySink sink = [&taker](const HttpReply& head, std::string_view part) {
    return taker.Take(head, part);
  };
  const HttpReply reply = co_await http_.Ask(ask, sink);
  taker.Finish(reply);
  record.ended = Clock::now();
  co_return reply.retry_after_s;
}

asio::awaitable<RequestRecord> ChatClient::Ask(const ChatRequest& request) const {
  RequestRecord record;
  const std::string body = BodyOf(request);
  record.sent = Clock::now();
  double wait_s = options_.retry_wait_s;
  while (true) {
    const std::optional<double> retry_after_s = co_await Try(request, body, record);
    if (!IsRetriable(record) || static_cast<int>(record.refusals.size()) >= options_.max_retries) break;
    record.refusals.push_back(*record.failure);
    const double this_wait_s = std::min(retry_after_s.value_or(wait_s), options_.max_retry_wait_s);
    wait_s *= 2;
    co_await SleepUntil(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(this_wait_s)));
  }
  co_return record;
}

json::object Message(std::string_view role, std::string_view content) {
  return {{"role", role}, {"content", content}};
}

json::object AssistantMessage(const ChatAnswer& answer) {
  json::object message = Message("assistant", answer.content);
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  if (answer.tool_calls.empty()) return message;
  json::array& calls = message["tool_calls"].emplace_array();
  for (const ToolCall& call : answer.tool_calls) {
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

}  // namespace millrace::loadgen
