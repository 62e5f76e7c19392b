// What happens to generations over a whole server with a scripted model: full queues, failures, clients that
// leave or do not read, shutting down.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "api/server_answers_testing.h"
#include "engine/queue_estimate.h"

namespace millrace::api {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kHello = R"({"messages":[{"role":"user","content":"Hello!"}],"temperature":0)";
constexpr const char* kChat = kChatPath;
constexpr const char* kCompletions = kCompletionsPath;

std::string Hello(const std::string& fields) {
  return kHello + fields + "}";
}

class ServerLifecycleTest : public ServerAnswersTest {
 protected:
  void Start(ScriptedServerOptions options = {}) {
    ASSERT_NO_FATAL_FAILURE(ScriptedServerTest::Start(std::move(options)));
    server_->PlayChat("Hello!", /*thinking=*/true, "They greet.</think>Hello! How can I help you?");
    server_->PlayChat("Hello!", /*thinking=*/false, "Hello! How can I help you?");
  }

  ClientResponse AskWithTimeout(const char* path, const std::string& body, const std::string& seconds) {
    SocketClient client(port());
    client.Send("POST", path, body, "X-Request-Timeout: " + seconds + "\r\n");
    return client.Read();
  }

  // Sends a request and returns when its first step is held.
  void SendHeld(SocketClient& client, const char* path, const std::string& body) {
    model().HoldSteps();
    client.Send("POST", path, body);
    ASSERT_TRUE(model().WaitUntilHeld());
  }

  // Sends a request and returns when it waits for a slot, alone.
  void SendToWait(SocketClient& client, const char* path, const std::string& body) {
    client.Send("POST", path, body);
    WaitUntil([&] { return server_->engine().stats().waiting == 1; }, "the second waits");
  }
};

TEST_F(ServerLifecycleTest, AFullQueueAnswers429AtOnce) {
  ScriptedServerOptions options;
  options.engine.max_num_seqs = 1;
  options.engine.max_queue = 1;
  Start(options);
  SocketClient running(port()), waiting(port());
  ASSERT_NO_FATAL_FAILURE(SendHeld(running, kChat, Hello("")));
  SendToWait(waiting, kChat, Hello(""));
  for (const char* fields : {"", R"(,"stream":true)", R"(,"n":2)"}) {
    const ClientResponse refused = AskOnce(port(), "POST", kChat, Hello(fields));
    EXPECT_EQ(refused.status, 429);
    EXPECT_TRUE(refused.headers.contains("retry-after"));
    EXPECT_THAT(refused.body, HasSubstr("queue is full"));
  }
  EXPECT_THAT(AskOnce(port(), "GET", "/metrics").body,
              HasSubstr(R"(vllm:num_requests_waiting{model_name="scripted",engine="0"} 1)"));
  model().ReleaseSteps();
  EXPECT_EQ(running.Read().status, 200);
  EXPECT_EQ(waiting.Read().status, 200);
}

// Retry-After is the queue's tokens over the engine's rate, not a constant.
TEST_F(ServerLifecycleTest, AFullQueueSaysWhenToComeBack) {
  ScriptedServerOptions options;
  options.engine.max_num_seqs = 1;
  options.engine.max_queue = 1;
  options.model.step_delay = std::chrono::milliseconds(20);
  Start(options);
  const std::string longer = R"({"prompt":")" + std::string(800, 'a') + R"("})";
  EXPECT_EQ(AskOnce(port(), "POST", kCompletions, R"({"prompt":"a"})").status, 200);  // it learns the rate
  SocketClient running(port()), waiting(port());
  ASSERT_NO_FATAL_FAILURE(SendHeld(running, kCompletions, R"({"prompt":"a"})"));
  SendToWait(waiting, kCompletions, longer);
  const engine::EngineStats stats = server_->engine().stats();
  EXPECT_GT(stats.waiting_tokens, 50);
  const ClientResponse refused = AskOnce(port(), "POST", kCompletions, longer);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.at("retry-after"), std::to_string(engine::RetryAfterSeconds(stats)));
  EXPECT_NE(refused.headers.at("retry-after"), "2") << "what it says before it knows";
  model().ReleaseSteps();
  EXPECT_EQ(running.Read().status, 200);
  EXPECT_EQ(waiting.Read().status, 200);
}

TEST_F(ServerLifecycleTest, AnAnswerThatIsNotDoneInTimeIsATimeout) {
  ScriptedServerOptions options;
  options.model.max_model_len = 1'000'000;
  options.model.step_delay = std::chrono::milliseconds(1);
  options.service.default_max_tokens = 0;
  options.service.request_timeout_seconds = 0.2;
  Start(options);
  const ClientResponse whole = AskOnce(port(), "POST", kChat, Hello(R"(,"ignore_eos":true)"));
  EXPECT_EQ(whole.status, 504);
  EXPECT_THAT(whole.body, HasSubstr(R"("type":"timeout_error")"));
  EXPECT_THAT(whole.body, HasSubstr(R"("code":"request_timeout")"));
  EXPECT_THAT(whole.body, ::testing::ContainsRegex(R"(is not done after (0\.[2-9]|[1-9]))"))
      << "counted from its arrival, however long it took to reach the engine";
  WaitUntilFree();

  const ClientResponse stream = AskOnce(port(), "POST", kChat, Hello(R"(,"ignore_eos":true,"stream":true)"));
  EXPECT_EQ(stream.status, 200);
  EXPECT_FALSE(stream.complete) << "the client must see that the stream was cut";
  EXPECT_THAT(stream.body, HasSubstr(R"("content":"Hello")")) << "what was in time was sent";
  EXPECT_THAT(EventData(stream.body).back(), HasSubstr(R"("code":"request_timeout")"));
  WaitUntilFree();

  const ClientResponse anthropic = AskWithTimeout(
      "/v1/messages", R"({"messages":[{"role":"user","content":"Loop"}],"max_tokens":9000})", "0.000001");
  EXPECT_EQ(anthropic.status, 504);
  EXPECT_THAT(anthropic.body, HasSubstr(R"("type":"timeout_error"},"request_id")"));

  EXPECT_EQ(server_->engine().stats().finished_timeout, 3u);
  const std::string metrics = AskOnce(port(), "GET", "/metrics").body;
  EXPECT_THAT(metrics, ::testing::ContainsRegex(R"(request_success_total\{[^}]*"timeout"[^}]*\} 3)"));
}

TEST_F(ServerLifecycleTest, AClientsOwnTimeoutIsKeptAndNonsenseRefused) {
  ScriptedServerOptions options;
  options.service.request_timeout_seconds = 0.05;
  Start(options);
  const auto ask = [&](const char* timeout) { return AskWithTimeout(kChat, Hello(""), timeout); };
  for (const char* nonsense : {"soon", "-1", "0", "nan", "1s", "1e999"}) {
    const ClientResponse refused = ask(nonsense);
    EXPECT_EQ(refused.status, 400) << nonsense;
    EXPECT_THAT(refused.body, HasSubstr("X-Request-Timeout")) << nonsense;
  }
  // Longer than the server allows is what the server allows.
  model().HoldSteps();
  SocketClient client(port());
  client.Send("POST", kChat, Hello(""), "X-Request-Timeout: 100\r\n");
  ASSERT_TRUE(model().WaitUntilHeld());
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  model().ReleaseSteps();
  EXPECT_EQ(client.Read().status, 504);
}

TEST_F(ServerLifecycleTest, AWaitThatIsTooLongIsSentBackWith429) {
  ScriptedServerOptions options;
  options.engine.max_num_seqs = 1;
  options.engine.max_queue_seconds = 0.05;
  Start(options);
  SocketClient running(port()), waiting(port());
  ASSERT_NO_FATAL_FAILURE(SendHeld(running, kChat, Hello("")));
  SendToWait(waiting, kChat, Hello(""));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  model().AllowSteps(1);
  const ClientResponse sent_back = waiting.Read();
  EXPECT_EQ(sent_back.status, 429);
  EXPECT_TRUE(sent_back.headers.contains("retry-after"));
  EXPECT_THAT(sent_back.body, HasSubstr(R"("code":"queue_timeout")"));
  model().ReleaseSteps();
  EXPECT_EQ(running.Read().status, 200);
}

TEST_F(ServerLifecycleTest, RequestsThatFillTheQueueHalfWayAreTakenBack) {
  ScriptedServerOptions options;
  options.engine.max_num_seqs = 1;
  options.engine.max_queue = 2;
  Start(options);
  SocketClient running(port());
  ASSERT_NO_FATAL_FAILURE(SendHeld(running, kChat, Hello("")));
  EXPECT_EQ(AskOnce(port(), "POST", kChat, Hello(R"(,"n":3)")).status, 429);
  EXPECT_EQ(AskOnce(port(), "POST", kCompletions, R"({"prompt":["a","b","c"]})").status, 429);
  model().ReleaseSteps();
  EXPECT_EQ(running.Read().status, 200);
  WaitUntilFree();
  // The choices of one prompt are taken together or not at all; the prompts that were taken are counted as
  // asked for, as they are counted as ended.
  EXPECT_THAT(AskOnce(port(), "GET", "/metrics", "").body,
              HasSubstr("vllm:request_params_n_count{engine=\"0\",model_name=\"scripted\"} 2\n"));
  EXPECT_EQ(AskOnce(port(), "POST", kChat, Hello("")).status, 200);
}

TEST_F(ServerLifecycleTest, MoreAnswersThanThereIsRoomForAreRefusedForGood) {
  ScriptedServerOptions options;
  options.engine.max_num_seqs = 1;
  options.engine.max_queue = 2;
  Start(options);
  const ClientResponse refused = AskOnce(port(), "POST", kChat, Hello(R"(,"n":4)"));
  EXPECT_EQ(refused.status, 400) << "trying again would be in vain";
  EXPECT_THAT(refused.body, HasSubstr("asks for 4 answers, prompts times n, and this server has room for 3"));
}

TEST_F(ServerLifecycleTest, AModelThatFailsAnswers500OrAnErrorEvent) {
  Start();
  model().FailSteps(1);
  const ClientResponse whole = AskOnce(port(), "POST", kChat, Hello(""));
  EXPECT_EQ(whole.status, 500);
  EXPECT_THAT(whole.body, HasSubstr("scripted failure"));

  model().HoldSteps();
  SocketClient client(port());
  client.Send("POST", kChat, Hello(R"(,"stream":true)"));
  ASSERT_TRUE(model().WaitUntilHeld());
  model().AllowSteps(3);
  ASSERT_TRUE(client.ReadUntil("\"role\":\"assistant\""));
  model().FailSteps(1);
  model().ReleaseSteps();
  const ClientResponse stream = client.Read();
  EXPECT_EQ(stream.status, 200);
  EXPECT_FALSE(stream.complete) << "the client must see that the stream was cut";
  const std::vector<std::string> events = EventData(stream.body);
  ASSERT_FALSE(events.empty());
  EXPECT_THAT(events.back(), StartsWith(R"({"error":{"message":)"));
  EXPECT_THAT(events.back(), HasSubstr(R"("code":"internal_error")"));
  WaitUntilFree();
}

// A client that leaves frees its slot within one step, whatever its request was doing.
class DisconnectTest : public ServerLifecycleTest, public ::testing::WithParamInterface<bool> {
 protected:
  std::string Fields() const { return GetParam() ? R"(,"stream":true)" : ""; }
};

TEST_P(DisconnectTest, WhileItsPromptIsStillBeingComputed) {
  ScriptedServerOptions options;
  options.model.max_batch_tokens = 4;
  Start(options);
  model().HoldSteps();
  SocketClient client(port());
  client.Send("POST", kChat, Hello(Fields()));
  ASSERT_TRUE(model().WaitUntilHeld());
  client.Close();
  WaitUntil([&] { return server_->http().stats().disconnected == 1; }, "the disconnect is seen");
  model().AllowSteps(1);
  WaitUntilFree();
  EXPECT_EQ(model().recorded_steps().size(), 1u);
  EXPECT_EQ(server_->engine().stats().finished_cancelled, 1u);
}

TEST_P(DisconnectTest, WhileItWaitsInTheQueue) {
  ScriptedServerOptions options;
  options.engine.max_num_seqs = 1;
  Start(options);
  SocketClient running(port()), waiting(port());
  ASSERT_NO_FATAL_FAILURE(SendHeld(running, kChat, Hello("")));
  SendToWait(waiting, kChat, Hello(Fields()));
  waiting.Close();
  WaitUntil([&] { return server_->http().stats().disconnected == 1; }, "the disconnect is seen");
  model().ReleaseSteps();
  EXPECT_EQ(running.Read().status, 200);
  WaitUntilFree();
  EXPECT_EQ(server_->engine().stats().finished_cancelled, 1u);
}

TEST_P(DisconnectTest, InTheMiddleOfItsAnswer) {
  ScriptedServerOptions options;
  options.model.max_model_len = 1'000'000;
  options.model.step_delay = std::chrono::milliseconds(1);
  options.service.default_max_tokens = 0;
  Start(options);
  SocketClient client(port());
  client.Send("POST", kChat, Hello(Fields() + R"(,"ignore_eos":true)"));
  WaitUntil([&] { return server_->engine().stats().generation_tokens_total > 20; }, "tokens flow");
  client.Close();
  WaitUntilFree();
  const auto counted = [&] {
    return AskOnce(port(), "GET", "/metrics").body.find(R"(finished_reason="abort"} 1)") != std::string::npos;
  };
  WaitUntil(counted, "the end, which comes from the engine's thread, is counted");
}

TEST_P(DisconnectTest, ByShuttingDownItsSendingSide) {
  Start();
  model().HoldSteps();
  SocketClient client(port());
  client.Send("POST", kChat, Hello(Fields()));
  ASSERT_TRUE(model().WaitUntilHeld());
  client.ShutdownSend();
  WaitUntil([&] { return server_->http().stats().disconnected == 1; }, "the disconnect is seen");
  model().ReleaseSteps();
  WaitUntilFree();
  EXPECT_EQ(server_->engine().stats().finished_cancelled, 1u);
}

INSTANTIATE_TEST_SUITE_P(, DisconnectTest, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Streaming" : "Whole"; });

TEST_F(ServerLifecycleTest, AReaderThatStopsIsCancelledAndTheOthersGoOn) {
  ScriptedServerOptions options;
  options.model.max_model_len = 10'000'000;
  options.service.default_max_tokens = 0;
  options.http.max_output_bytes = 64 << 10;
  Start(options);
  const TokenId letter = server_->tokenizer().EncodeText("a").at(0);
  model().ComputeLogits([letter](std::span<const TokenId>, std::span<float> logits) {
    std::ranges::fill(logits, 0.0f);
    logits[static_cast<size_t>(letter)] = 100;
  });
  SocketClient stuck(port(), /*receive_buffer_bytes=*/4096);
  stuck.Send("POST", kChat, Hello(R"(,"stream":true,"logprobs":true,"top_logprobs":20)"));
  WaitUntil([&] { return server_->engine().stats().generation_tokens_total > 0; }, "the stream runs");
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(AskOnce(port(), "POST", kChat, Hello(R"(,"max_tokens":9)")).status, 200);
  WaitUntil([&] { return server_->http().stats().slow_readers == 1; }, "the slow reader is given up");
  WaitUntilFree();
}

TEST_F(ServerLifecycleTest, ASilentStreamSendsComments) {
  ScriptedServerOptions options;
  options.http.keep_alive_interval = std::chrono::milliseconds(20);
  Start(options);
  model().HoldSteps();
  SocketClient client(port());
  client.Send("POST", kChat, Hello(R"(,"stream":true)"));
  ASSERT_TRUE(client.ReadUntil(": keep-alive\n\n"));
  model().ReleaseSteps();
  const ClientResponse response = client.Read();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(EventData(response.body).back(), "[DONE]");
}

TEST_F(ServerLifecycleTest, AStreamOverHttp10EndsWithTheConnection) {
  Start();
  SocketClient client(port());
  const std::string body = Hello(R"(,"stream":true)");
  client.SendRaw("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
                 "\r\n\r\n" + body);
  const ClientResponse response = client.Read();
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
  EXPECT_EQ(EventData(response.body).back(), "[DONE]");
}

TEST_F(ServerLifecycleTest, AConnectionGoesOnAfterAStream) {
  Start();
  SocketClient client(port());
  client.Send("POST", kChat, Hello(R"(,"stream":true)"));
  EXPECT_TRUE(client.Read().complete);
  EXPECT_EQ(client.Ask("POST", kChat, Hello("")).status, 200);
}

TEST_F(ServerLifecycleTest, ARequestSentAheadDuringAStreamIsAnsweredAfterIt) {
  Start();
  model().HoldSteps();
  SocketClient client(port());
  client.Send("POST", kChat, Hello(R"(,"stream":true)"));
  ASSERT_TRUE(model().WaitUntilHeld());
  client.Send("GET", "/live");
  model().ReleaseSteps();
  EXPECT_EQ(EventData(client.Read().body).back(), "[DONE]");
  EXPECT_THAT(client.Read().body, HasSubstr("alive"));
}

TEST_F(ServerLifecycleTest, ADrainLetsRunningRequestsFinishAndRefusesNewOnes) {
  Start();
  model().HoldSteps();
  SocketClient running(port()), idle(port()), late(port());
  EXPECT_EQ(idle.Ask("GET", "/ready").status, 200);
  running.Send("POST", kChat, Hello(R"(,"stream":true)"));
  ASSERT_TRUE(model().WaitUntilHeld());
  late.SendRaw(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n");  // busy, so that the drain leaves it open
  EXPECT_EQ(idle.Ask("GET", "/live").status, 200);
  std::thread drain([&] { server_->Drain(std::chrono::seconds(20)); });
  const auto status = [&](const char* path) { return AskOnce(port(), "GET", path).status; };
  WaitUntil([&] { return status("/ready") == 503; }, "the drain has begun");
  EXPECT_EQ(status("/live"), 200) << "on a connection of its own: none is refused";
  EXPECT_EQ(status("/metrics"), 200);
  for (const char* path : {"/ready", "/health"}) {
    const ClientResponse probe = AskOnce(port(), "GET", path);
    EXPECT_EQ(probe.status, 503) << path;
    EXPECT_THAT(probe.body, HasSubstr(R"("reason":"the server was told to stop)")) << path;
  }
  EXPECT_EQ(status("/v1/models"), 503);
  const ClientResponse overloaded = AskOnce(port(), "POST", "/v1/messages", "{}");
  EXPECT_EQ(overloaded.status, 529) << "in Anthropic's dialect";
  EXPECT_TRUE(overloaded.headers.contains("retry-after"));
  EXPECT_THAT(overloaded.body, HasSubstr(R"("type":"overloaded_error")"));
  const ClientResponse kept = idle.Ask("GET", "/ready");
  EXPECT_EQ(kept.status, 503) << "an idle connection is still served, once";
  EXPECT_EQ(kept.headers.at("connection"), "close");
  const std::string body = Hello("");
  late.SendRaw("Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  const ClientResponse refused = late.Read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_EQ(refused.headers.at("connection"), "close");
  model().ReleaseSteps();
  EXPECT_EQ(EventData(running.Read().body).back(), "[DONE]");
  EXPECT_TRUE(running.ReadEnd());
  drain.join();
  EXPECT_FALSE(SocketClient(port()).connected());
}

TEST_F(ServerLifecycleTest, ADrainCancelsWhatTheDeadlineDoesNotLetFinish) {
  ScriptedServerOptions options;
  options.model.max_model_len = 1'000'000;
  options.model.step_delay = std::chrono::milliseconds(1);
  options.service.default_max_tokens = 0;
  Start(options);
  SocketClient stream(port()), whole(port());
  stream.Send("POST", kChat, Hello(R"(,"stream":true,"ignore_eos":true)"));
  whole.Send("POST", kChat, Hello(R"(,"ignore_eos":true)"));
  ASSERT_TRUE(stream.ReadUntil("\"role\":\"assistant\""));
  WaitUntil([&] { return server_->engine().stats().running == 2; }, "both run");
  server_->Drain(std::chrono::milliseconds(50));
  const ClientResponse cut = stream.Read();
  EXPECT_FALSE(cut.complete);
  EXPECT_THAT(EventData(cut.body).back(), HasSubstr(R"("code":"shutting_down")"));
  EXPECT_EQ(whole.Read().status, 503);
}

TEST_F(ServerLifecycleTest, MetricsCountWhatHappened) {
  Start();
  const json::object answer = Answer(kChat, Hello(""));
  EXPECT_EQ(AskOnce(port(), "POST", kChat, "{}").status, 400);
  const std::string metrics = AskOnce(port(), "GET", "/metrics").body;
  const std::string labels = R"({model_name="scripted",engine="0"} )";
  const auto number = [&](const char* key) { return std::to_string(answer.at("usage").at(key).as_int64()); };
  EXPECT_THAT(metrics, HasSubstr("vllm:prompt_tokens_total" + labels + number("prompt_tokens") + "\n"));
  EXPECT_THAT(metrics,
              HasSubstr("vllm:generation_tokens_total" + labels + number("completion_tokens") + "\n"));
  EXPECT_THAT(metrics, HasSubstr(R"(finished_reason="stop"} 1)"));
  EXPECT_THAT(metrics, HasSubstr("vllm:time_to_first_token_seconds_count"));
  EXPECT_THAT(metrics, HasSubstr(R"(millrace_http_responses_total{code="200"} 1)"));
  EXPECT_THAT(metrics, HasSubstr(R"(millrace_http_responses_total{code="400"} 1)"));
}

}  // namespace
}  // namespace millrace::api
