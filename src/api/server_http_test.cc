// The transport: HTTP/1.1 as clients, probes and broken clients speak it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "api/scripted_server_testing.h"
#include "api/socket_client.h"
#include "api/wait_until_testing.h"

namespace millrace::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ServerHttpTest : public ScriptedServerTest {};

TEST_F(ServerHttpTest, AnswersSeveralRequestsOnOneConnection) {
  Start();
  SocketClient client(port());
  for (int i = 0; i < 3; ++i) {
    const ClientResponse response = client.Ask("GET", "/live");
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, R"({"status":"alive"})");
    EXPECT_EQ(response.headers.at("content-type"), "application/json");
  }
  EXPECT_EQ(server_->http().stats().connections, 1u);
}

TEST_F(ServerHttpTest, AnswersPipelinedRequestsInOrder) {
  Start();
  SocketClient client(port());
  client.SendRaw(
      "GET /live HTTP/1.1\r\nHost: a\r\n\r\nGET /version HTTP/1.1\r\nHost: a\r\n\r\n"
      "GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(client.Read().body, HasSubstr("alive"));
  EXPECT_THAT(client.Read().body, HasSubstr("version"));
  EXPECT_EQ(client.Read().status, 404);
}

TEST_F(ServerHttpTest, ClosesWhenAskedTo) {
  Start();
  SocketClient client(port());
  client.Send("GET", "/live", "", "Connection: close\r\n");
  EXPECT_EQ(client.Read().headers.at("connection"), "close");
  EXPECT_TRUE(client.ReadEnd());

  SocketClient old(port());
  old.SendRaw("GET /live HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.Read().status, 200);
  EXPECT_TRUE(old.ReadEnd());
}

TEST_F(ServerHttpTest, HeadGivesTheHeadersOfGetAlone) {
  Start();
  SocketClient client(port());
  const ClientResponse head = client.Ask("HEAD", "/live");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "18");
  EXPECT_EQ(client.Ask("GET", "/live").body.size(), 18u);
}

TEST_F(ServerHttpTest, UnknownPathsAndMethodsGetErrorObjects) {
  Start();
  SocketClient client(port());
  const ClientResponse lost = client.Ask("POST", "/v1/embeddings", "{}");
  EXPECT_EQ(lost.status, 404);
  EXPECT_THAT(lost.body, HasSubstr(R"("message":"Unknown request URL: POST /v1/embeddings.")"));
  EXPECT_THAT(lost.body, HasSubstr(R"("type":"invalid_request_error","param":null,"code":"unknown_url")"));

  const ClientResponse wrong = client.Ask("GET", "/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(client.Ask("DELETE", "/v1/models").headers.at("allow"), "GET, HEAD, OPTIONS");

  const ClientResponse options = client.Ask("OPTIONS", "/v1/models");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("allow"), "GET, HEAD, OPTIONS");
  EXPECT_FALSE(options.headers.contains("content-length"));
}

TEST_F(ServerHttpTest, EchoesARequestIdOrMakesOne) {
  Start();
  SocketClient client(port());
  client.Send("GET", "/live", "", "X-Request-Id: abc-123\r\n");
  EXPECT_EQ(client.Read().headers.at("x-request-id"), "abc-123");
  EXPECT_EQ(client.Ask("GET", "/live").headers.at("x-request-id").size(), 32u);
  client.Send("GET", "/live", "", "X-Request-Id: " + std::string(200, 'x') + "\r\n");
  EXPECT_EQ(client.Read().headers.at("x-request-id").size(), 32u);
}

TEST_F(ServerHttpTest, RefusesWhatIsNotHttp) {
  Start();
  for (const char* bytes :
       {"hello\r\n\r\n", "GET /live HTTP/9.9\r\n\r\n", "GET /live HTTP/1.1\r\nno colon\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        "\x16\x03\x01\x02\x01\x01\r\n\r\n"}) {
    SocketClient client(port());
    client.SendRaw(bytes);
    const ClientResponse response = client.Read();
    EXPECT_EQ(response.status, 400) << bytes;
    EXPECT_THAT(response.body, HasSubstr(R"("code":"malformed_request")")) << bytes;
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_TRUE(client.ReadEnd());
  }
  EXPECT_EQ(server_->http().stats().malformed, 5u);
}

TEST_F(ServerHttpTest, RefusesARequestWithoutOneHost) {
  Start();
  for (const char* hosts : {"", "Host: a\r\nHost: a\r\n"}) {
    SocketClient client(port());
    client.SendRaw("GET /live HTTP/1.1\r\n" + std::string(hosts) + "\r\n");
    const ClientResponse response = client.Read();
    EXPECT_EQ(response.status, 400);
    EXPECT_THAT(response.body, HasSubstr("Host headers; HTTP/1.1 asks for one."));
    EXPECT_THAT(response.body, HasSubstr(R"("code":"malformed_request")"));
  }
  SocketClient old(port());
  old.SendRaw("GET /live HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.Read().status, 200);
}

TEST_F(ServerHttpTest, RefusesTransferEncodingsByName) {
  Start();
  for (const char* codings : {"gzip, chunked", "gzip", "chunked, gzip", "chunked;q=1"}) {
    SocketClient client(port());
    client.Send("POST", "/v1/completions", "",
                "Transfer-Encoding: " + std::string(codings) + "\r\n\r\n2\r\n{}\r\n0\r\n");
    const ClientResponse response = client.Read();
    EXPECT_EQ(response.status, 501);
    EXPECT_THAT(response.body, HasSubstr("'" + std::string(codings) + "' is not supported"));
    EXPECT_THAT(response.body, HasSubstr(R"("code":"unsupported_transfer_encoding")"));
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_TRUE(client.ReadEnd()) << "what follows is not read as a request";
  }
  SocketClient split(port());
  split.Send("POST", "/v1/completions", "",
             "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n");
  EXPECT_EQ(split.Read().status, 501);
}

TEST_F(ServerHttpTest, TakesAbsoluteTargets) {
  Start();
  SocketClient client(port());
  EXPECT_EQ(client.Ask("GET", "http://somewhere:8000/v1/models?limit=1").status, 200);
  EXPECT_THAT(client.Ask("GET", "http://somewhere").body, HasSubstr("Unknown request URL: GET /."));
}

TEST_F(ServerHttpTest, RefusesTooLargeHeadersAndBodies) {
  ScriptedServerOptions options;
  options.http.max_header_bytes = 2048;
  options.http.max_body_bytes = 1000;
  Start(options);
  SocketClient headers(port());
  headers.Send("GET", "/live", "", "X-Long: " + std::string(4000, 'x') + "\r\n");
  const ClientResponse too_long = headers.Read();
  EXPECT_EQ(too_long.status, 431);
  EXPECT_THAT(too_long.body, HasSubstr("2048 bytes"));

  const ClientResponse too_large = AskOnce(port(), "POST", "/v1/completions", std::string(5000, ' '));
  EXPECT_EQ(too_large.status, 413);
  EXPECT_THAT(too_large.body, HasSubstr("1000 bytes"));
  EXPECT_THAT(too_large.body, HasSubstr(R"("code":"request_too_large")"));

  SocketClient chunked(port());
  chunked.SendRaw("POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" +
                  std::string(0x800, ' ') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.Read().status, 413);
}

TEST_F(ServerHttpTest, ReadsChunkedBodiesAndExpectations) {
  Start();
  SocketClient client(port());
  client.SendRaw(
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: "
      "100-continue\r\n\r\n");
  ASSERT_TRUE(client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n"));
  client.SendRaw("5\r\n{\"pro\r\nd\r\nmpt\":5,\"n\":1}\r\n0\r\n\r\n");
  client.Read(/*has_body=*/false);  // the 100
  const ClientResponse response = client.Read();
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr(R"("param":"prompt")"));
}

TEST_F(ServerHttpTest, BodiesInFlightArePlannedMemory) {
  ScriptedServerOptions options;
  options.http.max_body_bytes = 1000;
  options.http.max_bodies_bytes = 1500;
  Start(options);
  SocketClient slow(port());
  slow.SendRaw("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{");
  SocketClient other(port());
  while (true) {  // until the first request's reservation is seen
    const ClientResponse response = other.Ask("POST", "/v1/completions", std::string(900, ' '));
    if (response.status == 503) {
      EXPECT_TRUE(response.headers.contains("retry-after"));
      break;
    }
    ASSERT_EQ(response.status, 400);
  }
  slow.Close();
  // The reservation ends with its connection.
  for (int i = 0; AskOnce(port(), "POST", "/v1/completions", std::string(900, ' ')).status == 503; ++i)
    ASSERT_LT(i, 1000);
}

TEST_F(ServerHttpTest, ConnectionsAboveTheLimitAreToldSo) {
  ScriptedServerOptions options;
  options.http.max_connections = 2;
  Start(options);
  SocketClient first(port()), second(port());
  EXPECT_EQ(first.Ask("GET", "/live").status, 200);
  EXPECT_EQ(second.Ask("GET", "/live").status, 200);
  SocketClient third(port());
  const ClientResponse refused = third.Read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_TRUE(third.ReadEnd());
  third.Close();
  first.Close();
  for (int i = 0; AskOnce(port(), "GET", "/live").status != 200; ++i) ASSERT_LT(i, 1000);
}

TEST_F(ServerHttpTest, SilentConnectionsAreClosed) {
  ScriptedServerOptions options;
  options.http.idle_timeout = std::chrono::milliseconds(50);
  options.http.header_timeout = std::chrono::milliseconds(50);
  options.http.body_timeout = std::chrono::milliseconds(50);
  Start(options);
  SocketClient idle(port());
  EXPECT_TRUE(idle.ReadEnd());
  SocketClient half(port());
  half.SendRaw("GET /live HT");
  EXPECT_TRUE(half.ReadEnd());
  SocketClient body(port());
  body.SendRaw("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{");
  EXPECT_TRUE(body.ReadEnd());
}

TEST_F(ServerHttpTest, APortInUseIsAnError) {
  Start();
  ScriptedServerOptions options;
  options.tokenizer = MILLRACE_SOURCE_DIR "/models/mini";
  options.http.port = port();
  const auto second = ScriptedServer::Start(std::move(options));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), ErrorCode::kIo);
  EXPECT_THAT(second.error().message(), HasSubstr("127.0.0.1:" + std::to_string(port())));
  EXPECT_THAT(second.error().message(), HasSubstr("another process uses that port"));
}

TEST_F(ServerHttpTest, ProbesAnswerWhileAStepRuns) {
  Start();
  server_->model().HoldSteps();
  server_->PlayByDefault("x");
  SocketClient asking(port());
  asking.Send("POST", "/v1/completions", R"({"prompt":"a"})");
  ASSERT_TRUE(server_->model().WaitUntilHeld());
  SocketClient probe(port());
  for (const char* path : {"/live", "/ready", "/health", "/metrics", "/v1/models"}) {
    const auto begin = std::chrono::steady_clock::now();
    const ClientResponse response = probe.Ask("GET", path);
    EXPECT_EQ(response.status, 200) << path;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500)) << path;
  }
  EXPECT_THAT(probe.Ask("GET", "/health").body, HasSubstr(R"("state":"busy")"));
  server_->model().ReleaseSteps();
  EXPECT_EQ(asking.Read().status, 200);
}

TEST_F(ServerHttpTest, AStepThatTakesTooLongIsCalledStuck) {
  ScriptedServerOptions options;
  options.engine.watchdog.stuck_after_seconds = 0.001;
  Start(options);
  EXPECT_THAT(AskOnce(port(), "GET", "/health").body, HasSubstr(R"("state":"idle")"));
  server_->model().HoldSteps();
  SocketClient asking(port());
  asking.Send("POST", "/v1/completions", R"({"prompt":"a"})");
  ASSERT_TRUE(server_->model().WaitUntilHeld());
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const ClientResponse health = AskOnce(port(), "GET", "/health");
  EXPECT_EQ(health.status, 200);
  EXPECT_THAT(health.body, HasSubstr(R"("state":"stuck")"));
}

TEST_F(ServerHttpTest, AStuckEngineIsNotReadyUntilItMovesAgain) {
  ScriptedServerOptions options;
  options.engine.watchdog = {.slow_step_seconds = 0.01, .stuck_after_seconds = 0.05};
  Start(options);
  const auto ready = [&] { return AskOnce(port(), "GET", "/ready"); };
  EXPECT_EQ(ready().status, 200);
  server_->PlayByDefault("x");
  server_->model().HoldSteps();
  SocketClient asking(port());
  asking.Send("POST", "/v1/completions", R"({"prompt":"a"})");
  ASSERT_TRUE(server_->model().WaitUntilHeld());
  WaitUntil([&] { return ready().status == 503; }, "the engine is stuck");
  EXPECT_THAT(ready().body, HasSubstr(R"("reason":"the engine has made no progress for)"));
  EXPECT_EQ(AskOnce(port(), "GET", "/live").status, 200);
  WaitUntil([&] { return server_->engine().stats().stuck_total == 1; }, "the watchdog has seen it");
  const std::string metrics = AskOnce(port(), "GET", "/metrics").body;
  for (const char* line : {R"(millrace_engine_stuck{model_name="scripted",engine="0"} 1)",
                           R"(millrace_watchdog_stuck_total{model_name="scripted",engine="0"} 1)",
                           R"(millrace_watchdog_slow_steps_total{model_name="scripted",engine="0"} 1)"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  server_->model().ReleaseSteps();
  EXPECT_EQ(asking.Read().status, 200);
  EXPECT_EQ(ready().status, 200);
}

// Whatever the engine does: its thread is blocked in a step, and the queue is full.
TEST_F(ServerHttpTest, ProbesAreAnsweredWithinATenthOfASecond) {
  ScriptedServerOptions options;
  options.engine.max_num_seqs = 1;
  options.engine.max_queue = 1;
  Start(options);
  server_->PlayByDefault("x");
  server_->model().HoldSteps();
  SocketClient running(port()), waiting(port());
  running.Send("POST", "/v1/completions", R"({"prompt":"a"})");
  ASSERT_TRUE(server_->model().WaitUntilHeld());
  waiting.Send("POST", "/v1/completions", R"({"prompt":"a"})");
  WaitUntil([&] { return server_->engine().stats().waiting == 1; }, "the second waits");
  SocketClient probe(port());
  for (int i = 0; i < 100; ++i) {
    for (const char* path : {"/live", "/health", "/ready"}) {
      // The best of three: other processes of the machine may take one answer's time, not three.
      auto best = std::chrono::steady_clock::duration::max();
      for (int attempt = 0; attempt < 3; ++attempt) {
        const auto begin = std::chrono::steady_clock::now();
        EXPECT_EQ(probe.Ask("GET", path).status, 200) << path;
        best = std::min(best, std::chrono::steady_clock::now() - begin);
      }
      ASSERT_LT(best, std::chrono::milliseconds(100)) << path;
    }
  }
  server_->model().ReleaseSteps();
  EXPECT_EQ(running.Read().status, 200);
  EXPECT_EQ(waiting.Read().status, 200);
}

TEST_F(ServerHttpTest, MetricsAreCompleteBeforeAnythingHappened) {
  Start();
  const ClientResponse response = AskOnce(port(), "GET", "/metrics");
  EXPECT_EQ(response.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line :
       {R"(vllm:num_requests_running{model_name="scripted",engine="0"} 0)",
        R"(vllm:num_requests_waiting{model_name="scripted",engine="0"} 0)",
        R"(vllm:prompt_tokens_total{model_name="scripted",engine="0"} 0)",
        R"(vllm:generation_tokens_total{model_name="scripted",engine="0"} 0)",
        R"(millrace_memory_planned_bytes{account="queued output"} 335544320)",
        "\nmillrace_process_anonymous_bytes ", R"(finished_reason="stop")",
        R"(vllm:time_to_first_token_seconds_bucket)", R"(le="1800")",
        R"(vllm:inter_token_latency_seconds_count)", R"(vllm:e2e_request_latency_seconds_count)"}) {
    EXPECT_THAT(response.body, HasSubstr(line));
  }
}

}  // namespace
}  // namespace millrace::api
