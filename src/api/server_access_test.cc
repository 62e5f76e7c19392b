// Who may ask, and what the log says of it: keys, web pages, the access log.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>

#include <string>
#include <vector>

#include "api/scripted_server_testing.h"
#include "api/socket_client.h"
#include "base/log.h"

namespace millrace::api {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr const char* kKey = "sk-right-key";

class ServerAccessTest : public ScriptedServerTest {
 protected:
  void StartWithKeys() {
    ScriptedServerOptions options;
    options.service.api_keys = {"sk-first", kKey};
    Start(std::move(options));
  }

  ClientResponse AskWith(const std::string& headers, std::string_view method, std::string_view path,
                         std::string_view body = "") {
    SocketClient client(port());
    client.Send(method, path, body, headers);
    return client.Read(method != "HEAD");
  }
};

TEST_F(ServerAccessTest, EveryEndpointButTheProbesAsksForAKey) {
  StartWithKeys();
  int closed = 0;
  for (const Endpoint& endpoint : Service::Endpoints()) {
    std::string path(endpoint.path);
    if (path.ends_with('/')) path += "x";
    const ClientResponse without = AskOnce(port(), endpoint.method, path);
    const std::string shown = std::string(endpoint.method) + " " + path;
    if (!endpoint.needs_key) {
      EXPECT_EQ(without.status, 200) << shown;
      continue;
    }
    ++closed;
    EXPECT_EQ(without.status, 401) << shown;
    EXPECT_EQ(without.headers.at("www-authenticate"), "Bearer realm=\"millrace\"") << shown;
    EXPECT_EQ(AskWith("Authorization: Bearer sk-wrong\r\n", endpoint.method, path).status, 401) << shown;
    EXPECT_NE(AskWith("Authorization: Bearer sk-right-key\r\n", endpoint.method, path).status, 401) << shown;
  }
  EXPECT_GT(closed, 4);
}

TEST_F(ServerAccessTest, TheOpenEndpointsAreTheProbes) {
  std::vector<std::string> open;
  for (const Endpoint& endpoint : Service::Endpoints())
    if (!endpoint.needs_key) open.emplace_back(endpoint.path);
  EXPECT_THAT(open, ::testing::UnorderedElementsAre("/health", "/healthz", "/live", "/livez", "/ping",
                                                    "/ping", "/ready", "/readyz"));
}

TEST_F(ServerAccessTest, WhatDoesNotExistIsToldOnlyToWhoHasAKey) {
  StartWithKeys();
  for (const char* path :
       {"/", "/nowhere", "/v1/messages/x", "/v1%2Fmodels", "//v1/models", "/health/", "/HEALTH"})
    EXPECT_EQ(AskOnce(port(), "GET", path).status, 401) << path;
  EXPECT_EQ(AskOnce(port(), "OPTIONS", "/v1/models").status, 401);
  EXPECT_EQ(AskOnce(port(), "DELETE", "/health").status, 401);
  EXPECT_EQ(AskWith("", "HEAD", "/health").status, 200);
  EXPECT_EQ(AskWith("", "HEAD", "/v1/models").status, 401);
  EXPECT_EQ(AskWith("x-api-key: sk-right-key\r\n", "GET", "/nowhere").status, 404);
}

TEST_F(ServerAccessTest, AKeyIsTakenFromEitherHeader) {
  StartWithKeys();
  for (const char* headers :
       {"Authorization: Bearer sk-right-key\r\n", "authorization: bearer   sk-first\r\n",
        "X-Api-Key: sk-right-key\r\n", "Authorization: Bearer other\r\nx-api-key: sk-first\r\n"})
    EXPECT_EQ(AskWith(headers, "GET", "/v1/models").status, 200) << headers;
  for (const char* headers : {"Authorization: sk-right-key\r\n", "Authorization: Basic sk-right-key\r\n",
                              "Authorization: Bearer\r\n", "Authorization: Bearer \r\n", "x-api-key: \r\n",
                              "x-api-key: sk-right-ke\r\n", "x-api-key: sk-right-keyy\r\n",
                              "x-api-key: sk-right-keysk-right-key\r\n", "x-api-key: SK-RIGHT-KEY\r\n"})
    EXPECT_EQ(AskWith(headers, "GET", "/v1/models").status, 401) << headers;
}

TEST_F(ServerAccessTest, ARefusalSpeaksTheDialectOfThePath) {
  StartWithKeys();
  const ClientResponse open_ai = AskOnce(port(), "POST", "/v1/chat/completions", "{}");
  EXPECT_THAT(open_ai.body,
              HasSubstr(R"("type":"invalid_request_error","param":null,"code":"invalid_api_key")"));
  const ClientResponse anthropic = AskWith("X-Request-Id: r1\r\n", "POST", "/v1/messages", "{}");
  EXPECT_EQ(anthropic.status, 401);
  EXPECT_THAT(anthropic.body, HasSubstr(R"({"type":"error","error":{"message":"The API key is missing)"));
  EXPECT_THAT(anthropic.body, HasSubstr(R"("type":"authentication_error"},"request_id":"r1"})"));
  EXPECT_EQ(anthropic.headers.at("x-request-id"), "r1");
}

TEST_F(ServerAccessTest, WithoutAKeyNoBodyIsRead) {
  StartWithKeys();
  SocketClient client(port());
  client.SendRaw(
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n"
      "Expect: 100-continue\r\n\r\n");
  const ClientResponse refused = client.Read();
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("connection"), "close");
  EXPECT_TRUE(client.ReadEnd());
  EXPECT_EQ(server_->http().stats().body_bytes, 0u);
  const ClientResponse metrics = AskWith("x-api-key: sk-first\r\n", "GET", "/metrics");
  EXPECT_THAT(metrics.body, HasSubstr(R"(millrace_http_responses_total{code="401"} 1)"));
  EXPECT_THAT(metrics.body, HasSubstr("millrace_http_malformed_requests_total 0"));
}

TEST_F(ServerAccessTest, ErrorsUnderMessagesAreAnthropics) {
  ScriptedServerOptions options;
  options.http.max_body_bytes = 100;
  Start(options);
  const ClientResponse lost = AskOnce(port(), "POST", "/v1/messages/batches", "{}");
  EXPECT_EQ(lost.status, 404);
  EXPECT_THAT(lost.body, HasSubstr(R"("type":"not_found_error"},"request_id":")"));
  const ClientResponse large = AskOnce(port(), "POST", "/v1/messages/batches", std::string(200, ' '));
  EXPECT_EQ(large.status, 413);
  EXPECT_THAT(large.body, HasSubstr(R"("type":"request_too_large")"));
  EXPECT_THAT(AskOnce(port(), "GET", "/v1/messagesx").body, HasSubstr("unknown_url"));
}

TEST_F(ServerAccessTest, WebPagesAreNotAnsweredByDefault) {
  Start();
  const ClientResponse answer = AskWith("Origin: https://a.example\r\n", "GET", "/v1/models");
  EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(answer.headers.contains("access-control-allow-origin"));
  const ClientResponse preflight =
      AskWith("Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n", "OPTIONS",
              "/v1/chat/completions");
  EXPECT_FALSE(preflight.headers.contains("access-control-allow-origin"));
  EXPECT_FALSE(preflight.headers.contains("access-control-allow-methods"));
}

TEST_F(ServerAccessTest, AllowedPagesMayAskAndRead) {
  ScriptedServerOptions options;
  options.service.cors_origins = {"https://a.example", "http://localhost:3000"};
  options.service.api_keys = {kKey};
  Start(options);
  const ClientResponse preflight = AskWith(
      "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization, content-type\r\n",
      "OPTIONS", "/v1/chat/completions");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://a.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization, content-type");
  EXPECT_EQ(preflight.headers.at("access-control-allow-methods"), "GET, POST, OPTIONS");
  EXPECT_EQ(preflight.headers.at("vary"), "Origin");
  // Also a page's unauthorized request, with a body or not, is told so in words it can read.
  for (const char* body : {"", "{}"}) {
    const ClientResponse refused =
        AskWith("Origin: http://localhost:3000\r\n", "POST", "/v1/chat/completions", body);
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(refused.headers.at("access-control-allow-origin"), "http://localhost:3000");
  }
  const ClientResponse other =
      AskWith("Origin: https://b.example\r\nx-api-key: sk-right-key\r\n", "GET", "/v1/models");
  EXPECT_EQ(other.status, 200);
  EXPECT_FALSE(other.headers.contains("access-control-allow-origin"));
  EXPECT_EQ(
      AskWith("Origin: https://b.example\r\nAccess-Control-Request-Method: GET\r\n", "OPTIONS", "/v1/models")
          .status,
      401);
}

TEST_F(ServerAccessTest, EveryPageMayAskWithAStar) {
  ScriptedServerOptions options;
  options.service.cors_origins = {"*"};
  Start(options);
  server_->PlayByDefault("x");
  const ClientResponse stream =
      AskWith("Origin: https://a.example\r\n", "POST", "/v1/completions", R"({"prompt":"a","stream":true})");
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(stream.headers.at("access-control-allow-origin"), "*");
  EXPECT_TRUE(stream.headers.contains("x-request-id"));
}

// Collects the process's log while it lives.
class AccessLogTest : public ServerAccessTest {
 protected:
  void SetUp() override {
    ::testing::internal::CaptureStderr();
    ASSERT_TRUE(SetUpLog("info").ok());
  }
  // The lines of requests; the server has ended then.
  std::vector<std::string> Lines() {
    server_.reset();
    spdlog::default_logger()->flush();
    all_ = ::testing::internal::GetCapturedStderr();
    std::vector<std::string> lines;
    for (size_t at = 0, end; (end = all_.find('\n', at)) != std::string::npos; at = end + 1) {
      const std::string line = all_.substr(at, end - at);
      if (const size_t event = line.find(" info request "); event != std::string::npos)
        lines.push_back(line.substr(event + 6));
    }
    return lines;
  }
  std::string all_;
};

TEST_F(AccessLogTest, AGenerationHasOneLineWithItsNumbers) {
  Start();
  server_->PlayByDefault("one two three four");
  EXPECT_EQ(AskWith("X-Request-Id: r-1\r\n", "POST", "/v1/completions?secret=query",
                    R"({"prompt":"PRIVATE TEXT","max_tokens":3})")
                .status,
            200);
  EXPECT_EQ(AskWith("X-Request-Id: r-2\r\n", "POST", "/v1/completions",
                    R"({"prompt":"PRIVATE TEXT","model":"scripted","stream":true,"n":2})")
                .status,
            200);
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 2u) << all_;
  EXPECT_THAT(
      lines[0],
      MatchesRegex("request request_id=r-1 method=POST path=/v1/completions status=200 model=scripted "
                   "prompt_tokens=[0-9]+ cached_tokens=0 generated_tokens=3 ttft_s=[0-9.]+ "
                   "decode_tok_s=[0-9.]+ finish_reason=length bytes=[0-9]+ duration_s=[0-9.]+"));
  EXPECT_THAT(lines[1], HasSubstr("request_id=r-2"));
  EXPECT_THAT(lines[1], HasSubstr(" choices=2 "));
  EXPECT_THAT(lines[1], HasSubstr("finish_reason=stop"));
  EXPECT_THAT(all_, Not(HasSubstr("PRIVATE")));
  EXPECT_THAT(all_, Not(HasSubstr("secret")));
}

TEST_F(AccessLogTest, RefusalsNameCodeAndFieldButNeverWhatWasSent) {
  ScriptedServerOptions options;
  options.service.api_keys = {kKey};
  options.http.max_body_bytes = 1000;
  Start(options);
  const std::string key = "x-api-key: sk-right-key\r\n";
  EXPECT_EQ(AskWith("x-api-key: sk-guessed-key\r\n", "GET", "/v1/models").status, 401);
  EXPECT_EQ(AskWith("x-api-key: sk-guessed-key\r\n", "POST", "/v1/completions", "{}").status, 401);
  EXPECT_EQ(AskWith(key, "POST", "/v1/completions", R"({"prompt":"a","temperature":"PRIVATE TEXT"})").status,
            400);
  EXPECT_EQ(AskWith(key, "POST", "/v1/completions", std::string(2000, 'P')).status, 413);
  EXPECT_EQ(AskWith(key, "GET", "/no\x01\"where").status, 400);
  EXPECT_EQ(AskWith(key, "GET", "/no%0Awhere\"x").status, 404);
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 6u) << all_;
  EXPECT_THAT(lines[0], HasSubstr("path=/v1/models status=401 error=invalid_api_key"));
  EXPECT_THAT(lines[1], HasSubstr("path=/v1/completions status=401 error=invalid_api_key"));
  EXPECT_THAT(lines[2], HasSubstr("status=400 error=invalid_type param=temperature"));
  EXPECT_THAT(lines[3], HasSubstr("path=/v1/completions status=413 error=request_too_large"));
  EXPECT_THAT(lines[4], HasSubstr("status=400 error=malformed_request"));
  EXPECT_THAT(lines[5], HasSubstr(R"(path="/no%0Awhere\"x" status=404 error=unknown_url)"));
  EXPECT_THAT(all_, Not(HasSubstr("PRIVATE")));
  EXPECT_THAT(all_, Not(HasSubstr("sk-")));
}

TEST_F(AccessLogTest, AnAnswerThatFoundNoRoomIsLoggedAsWhatWasSent) {
  ScriptedServerOptions options;
  options.http.max_outputs_bytes = 1;
  Start(std::move(options));
  std::string text;
  while (text.size() < 300'000) text += "Hello ";
  const ClientResponse refused = AskWith("", "POST", "/tokenize", R"({"prompt":")" + text + R"("})");
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 1u) << all_;
  EXPECT_THAT(lines[0],
              HasSubstr("status=413 error=request_too_large bytes=" + std::to_string(refused.body.size())));
}

TEST_F(AccessLogTest, AClientThatLeavesIsLoggedAsGone) {
  Start();
  server_->PlayByDefault("one two three");
  server_->model().HoldSteps();
  {
    SocketClient client(port());
    client.Send("POST", "/v1/completions", R"({"prompt":"a"})");
    ASSERT_TRUE(server_->model().WaitUntilHeld());
  }
  while (server_->http().stats().disconnected == 0) std::this_thread::yield();
  server_->model().ReleaseSteps();
  while (server_->engine().stats().finished_cancelled == 0) std::this_thread::yield();
  server_->Drain(std::chrono::milliseconds(1000));
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 1u) << all_;
  EXPECT_THAT(lines[0], HasSubstr("status=499"));
}

TEST_F(AccessLogTest, LeavesOutWhatTheOperatorDoesNotWantToSee) {
  ScriptedServerOptions options;
  options.service.access_log.excluded_prefixes = {"/live", "/metrics"};
  Start(options);
  for (const char* path : {"/live", "/livez", "/metrics", "/version"}) AskOnce(port(), "GET", path);
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 1u) << all_;
  EXPECT_THAT(lines[0], HasSubstr("path=/version"));
}

TEST_F(AccessLogTest, CanBeSwitchedOff) {
  ScriptedServerOptions options;
  options.service.access_log.enabled = false;
  Start(options);
  EXPECT_EQ(AskOnce(port(), "GET", "/live").status, 200);
  EXPECT_EQ(AskOnce(port(), "GET", "/nowhere").status, 404);
  EXPECT_TRUE(Lines().empty()) << all_;
}

}  // namespace
}  // namespace millrace::api
