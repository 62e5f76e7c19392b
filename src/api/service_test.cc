// What happens to requests before the engine sees them: the service's threads are held where they hand over.

#include "api/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/scripted_server_testing.h"
#include "api/socket_client.h"

namespace millrace::api {
namespace {

using ::testing::HasSubstr;

// Its request occupies the thread that has prepared it until Release.
class HeldExchange final : public Exchange {
 public:
  void Post(std::function<void()>) override {
    arrived_.release();
    go_on_.acquire();
  }
  SentAnswer Send(HttpResponse) override { return {}; }
  void BeginStream(HttpResponse, std::function<std::string()>) override {}
  bool Write(std::string_view) override { return true; }
  void EndStream(StreamEnd) override {}
  void SetOnGone(std::function<void()>) override {}
  bool gone() const override { return false; }

  void WaitUntilHeld() { arrived_.acquire(); }
  void Release() { go_on_.release(); }

 private:
  std::binary_semaphore arrived_{0}, go_on_{0};
};

class PrepareQueueTest : public ScriptedServerTest {
 protected:
  static constexpr const char* kPath = "/v1/completions";
  static constexpr size_t kBodyBytes = 1000;

  // No thread of the service is left for what comes after this.
  void StartHeld(ScriptedServerOptions options) {
    ASSERT_NO_FATAL_FAILURE(Start(std::move(options)));
    for (const auto& exchange : held_) {
      HttpRequest request;
      request.method = "POST";
      request.path = kPath;
      server_->service().Handle(std::move(request), exchange);
      exchange->WaitUntilHeld();
    }
  }
  void TearDown() override { Release(); }
  void Release() {
    for (const auto& exchange : held_) exchange->Release();
    held_.clear();
  }

  void SendBody(SocketClient& client) { client.Send("POST", kPath, std::string(kBodyBytes, ' ')); }

  void WaitForBodies(size_t n) {
    for (int i = 0; server_->http().stats().body_bytes != n * kBodyBytes; ++i) {
      ASSERT_LT(i, 4000) << server_->http().stats().body_bytes << " bytes of bodies, not of " << n;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::vector<std::shared_ptr<HeldExchange>> held_ = {std::make_shared<HeldExchange>(),
                                                      std::make_shared<HeldExchange>()};
};

TEST_F(PrepareQueueTest, AnswersThatItIsFull) {
  ScriptedServerOptions options;
  options.service.max_preparing = 2;
  ASSERT_NO_FATAL_FAILURE(StartHeld(options));
  SocketClient first(port()), second(port());
  SendBody(first);
  SendBody(second);
  WaitForBodies(2);
  const ClientResponse refused = AskOnce(port(), "POST", kPath, std::string(kBodyBytes, ' '));
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_THAT(refused.body, HasSubstr("2 requests wait to be decoded"));
  WaitForBodies(2);
  Release();
  EXPECT_EQ(first.Read().status, 400);
  EXPECT_EQ(second.Read().status, 400);
  WaitForBodies(0);
}

TEST_F(PrepareQueueTest, ForgetsARequestWhoseClientLeaves) {
  ScriptedServerOptions options;
  options.service.max_preparing = 2;
  ASSERT_NO_FATAL_FAILURE(StartHeld(options));
  SocketClient leaving(port()), staying(port()), late(port());
  SendBody(leaving);
  SendBody(staying);
  WaitForBodies(2);
  leaving.Close();
  WaitForBodies(1);
  SendBody(late);  // into the place that is free now
  WaitForBodies(2);
  Release();
  EXPECT_EQ(staying.Read().status, 400);
  EXPECT_EQ(late.Read().status, 400);
}

TEST_F(PrepareQueueTest, CountsWaitingBodiesAsMemoryInFlight) {
  ScriptedServerOptions options;
  options.http.max_bodies_bytes = 2 * kBodyBytes + 1;
  ASSERT_NO_FATAL_FAILURE(StartHeld(options));
  SocketClient first(port()), second(port());
  SendBody(first);
  SendBody(second);
  WaitForBodies(2);
  EXPECT_EQ(AskOnce(port(), "POST", kPath, std::string(kBodyBytes, ' ')).status, 503);
  EXPECT_THAT(AskOnce(port(), "GET", "/metrics").body, HasSubstr("millrace_http_body_bytes 2000"));
  Release();
  EXPECT_EQ(first.Read().status, 400);
  EXPECT_EQ(second.Read().status, 400);
  EXPECT_EQ(AskOnce(port(), "POST", kPath, std::string(kBodyBytes, ' ')).status, 400);
}

}  // namespace
}  // namespace millrace::api
