#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "loadgen/chat_answer.h"
#include "loadgen/http_client.h"

namespace millrace::loadgen {

struct ChatOptions {
  std::string model;
  double temperature = 0;
  bool ignore_eos = false;         // answers of full length, by vLLM's and SGLang's fields
  boost::json::object extra_body;  // members of every request's body; they win
  int max_retries = 0;             // of one request after 429 or 503
  double retry_wait_s = 1;         // when the server gives no Retry-After; doubled at each retry
  double max_retry_wait_s = 60;    // a longer Retry-After is not waited out in full
};

// One request, and when to walk away from it.
struct ChatRequest {
  boost::json::array messages;
  boost::json::array tools;
  int64_t max_tokens = 16;
  std::optional<bool> ignore_eos;                        // instead of that of the options
  std::optional<double> temperature;                     // the same
  std::optional<std::chrono::milliseconds> leave_after;  // disconnect then
  std::optional<int> leave_after_events;                 // disconnect after so many events with text
  std::function<void(TimePoint)> on_text;                // at each event with text
};

// What became of a request.
struct RequestRecord {
  std::optional<Failure> failure;  // of the last try
  bool left = false;               // disconnected as asked
  std::vector<Failure> refusals;   // 429 and 503 that were retried
  TimePoint sent{};                // first try
  TimePoint ended{};
  std::vector<TimePoint> text_times;  // arrival of each event with text, of the last try
  std::optional<Usage> usage;
  ChatAnswer answer;  // as far as it came

  bool ok() const { return !failure && !left; }
};

// Asks for chat completions, streamed. One thread, any number at once.
class ChatClient {
 public:
  ChatClient(HttpClient http, ChatOptions options) : http_(std::move(http)), options_(std::move(options)) {}

  // `request` must live until the record is there.
  boost::asio::awaitable<RequestRecord> Ask(const ChatRequest& request) const;
  // The body that Ask sends.
  std::string BodyOf(const ChatRequest& request) const;

  const HttpClient& http() const { return http_; }
  const ChatOptions& options() const { return options_; }
  void set_model(std::string model) { options_.model = std::move(model); }

 private:
  // One try; fills all of `record` but `sent` and `refusals`. Returns the server's Retry-After.
  boost::asio::awaitable<std::optional<double>> Try(const ChatRequest& request, const std::string& body,
                                                    RequestRecord& record) const;

  HttpClient http_;
  ChatOptions options_;
};

// {"role": role, "content": content}
boost::json::object Message(std::string_view role, std::string_view content);
// The message that repeats an answer to the server, with its reasoning and calls.
boost::json::object AssistantMessage(const ChatAnswer& answer);

}  // namespace millrace::loadgen
