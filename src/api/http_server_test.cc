// The transport alone, under handlers that do what the service does only by accident of timing.

#include "api/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/socket_client.h"
#include "api/wait_until_testing.h"

namespace millrace::api {
namespace {

using std::chrono::milliseconds;

class HttpServerTest : public ::testing::Test {
 protected:
  void Serve(HttpServerOptions options, HttpHandler handler) {
    options.port = 0;
    auto server = HttpServer::Bind(options);
    ASSERT_TRUE(server.ok()) << server.error().message();
    server_ = std::move(server).value();
    const Status serving = server_->Serve(std::move(handler));
    ASSERT_TRUE(serving.ok()) << serving.error().message();
  }
  uint16_t port() const { return server_->port(); }
  HttpServerStats stats() const { return server_->stats(); }

  std::unique_ptr<HttpServer> server_;
};

// More than the kernel's buffers of a connection hold.
constexpr size_t kMoreThanTheKernelTakes = 32 << 20;

TEST_F(HttpServerTest, AReaderThatStopsIsCutOffWhileAWriteToItIsUnderWay) {
  HttpServerOptions options;
  options.max_output_bytes = 64 << 10;
  std::atomic<bool> gone{false};
  std::atomic<size_t> written{0};
  std::shared_ptr<Exchange> exchange;
  std::atomic<bool> streaming{false};
  Serve(options, [&](HttpRequest, std::shared_ptr<Exchange> given) {
    exchange = std::move(given);
    exchange->BeginStream({}, [] { return std::string(":"); });
    exchange->SetOnGone([&] { gone = true; });
    streaming = true;
  });
  SocketClient client(port(), /*receive_buffer_bytes=*/4096);
  client.Send("GET", "/");
  WaitUntil([&] { return streaming.load(); }, "the stream begins");
  // Slow enough that the server writes what it has before more comes: it is a pending write that blocks.
  while (!gone && written < kMoreThanTheKernelTakes) {
    exchange->Post([&] { exchange->Write(std::string(32 << 10, 'x')); });
    written += 32 << 10;
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(gone);
  WaitUntil([&] { return stats().connections == 0; }, "the connection is dropped");
  EXPECT_EQ(stats().slow_readers, 1u);
  EXPECT_EQ(stats().disconnected, 0u);
  server_.reset();
}

// Whole or streamed, what a client does not take within the write deadline ends as slow.
class WriteDeadlineTest : public HttpServerTest, public ::testing::WithParamInterface<bool> {};

TEST_P(WriteDeadlineTest, EndsAnAnswerThatIsNotRead) {
  HttpServerOptions options;
  options.max_output_bytes = 2 * kMoreThanTheKernelTakes;
  options.write_timeout = milliseconds(50);
  Serve(options, [](HttpRequest, std::shared_ptr<Exchange> exchange) {
    std::string bytes(kMoreThanTheKernelTakes, 'x');
    if (!GetParam()) {
      exchange->Send({.status = 200, .headers = {}, .body = std::move(bytes)});
      return;
    }
    exchange->BeginStream({}, [] { return std::string(":"); });
    exchange->Write(bytes);
  });
  SocketClient client(port(), /*receive_buffer_bytes=*/4096);
  client.Send("GET", "/");
  WaitUntil([&] { return stats().slow_readers == 1; }, "the slow reader is given up");
  WaitUntil([&] { return stats().connections == 0; }, "the connection is dropped");
  EXPECT_EQ(stats().disconnected, 0u);
}

INSTANTIATE_TEST_SUITE_P(, WriteDeadlineTest, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Streaming" : "Whole"; });

TEST_F(HttpServerTest, AClientThatSendsAheadAndLeavesIsSeenToLeave) {
  std::promise<std::shared_ptr<Exchange>> called;
  std::atomic<bool> gone{false};
  Serve({}, [&](HttpRequest, std::shared_ptr<Exchange> exchange) {
    exchange->SetOnGone([&] { gone = true; });
    called.set_value(std::move(exchange));
  });
  SocketClient client(port());
  client.Send("GET", "/");
  const std::shared_ptr<Exchange> exchange = called.get_future().get();
  client.SendRaw(std::string(1 << 20, 'x'));
  EXPECT_FALSE(gone);
  client.Close();
  WaitUntil([&] { return gone.load(); }, "the client is seen to have left");
  WaitUntil([&] { return stats().connections == 0; }, "the connection is closed");
  server_.reset();
}

TEST_F(HttpServerTest, AClientThatSendsTooMuchAheadGetsItsAnswerAndThenTheEnd) {
  std::promise<std::shared_ptr<Exchange>> called;
  Serve({}, [&](HttpRequest, std::shared_ptr<Exchange> exchange) { called.set_value(std::move(exchange)); });
  SocketClient client(port());
  client.Send("GET", "/");
  const std::shared_ptr<Exchange> exchange = called.get_future().get();
  client.SendRaw(std::string(kMoreThanTheKernelTakes, 'x'));  // so the server has read most of it
  exchange->Post([&] { exchange->Send({.headers = {}, .body = "here"}); });
  const ClientResponse response = client.Read();
  EXPECT_EQ(response.body, "here");
  EXPECT_EQ(response.headers.at("connection"), "close");
  WaitUntil([&] { return stats().connections == 0; }, "the connection is closed");
  EXPECT_EQ(stats().disconnected, 0u);
  server_.reset();
}

TEST_F(HttpServerTest, AWholeAnswerReachesAClientThatHasEndedItsSendingSide) {
  HttpServerOptions options;
  options.max_output_bytes = 2 * kMoreThanTheKernelTakes;
  std::promise<void> answered;
  Serve(options, [&](HttpRequest, std::shared_ptr<Exchange> exchange) {
    exchange->BeginStream({}, [] { return std::string(":"); });
    exchange->Write(std::string(kMoreThanTheKernelTakes, 'x'));
    exchange->EndStream(StreamEnd::kWhole);
    answered.set_value();
  });
  SocketClient client(port(), /*receive_buffer_bytes=*/4096);
  client.Send("GET", "/");
  answered.get_future().wait();
  client.ShutdownSend();
  const ClientResponse response = client.Read();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.body.size(), kMoreThanTheKernelTakes);
}

// Though its client would have kept it, and the time between two requests is long.
TEST_F(HttpServerTest, AConnectionWhoseEndWasSeenClosesBehindItsAnswer) {
  HttpServerOptions options;
  options.max_output_bytes = 2 * kMoreThanTheKernelTakes;
  options.idle_timeout = std::chrono::hours(1);
  std::promise<void> answered;
  Serve(options, [&](HttpRequest, std::shared_ptr<Exchange> exchange) {
    exchange->Send({.headers = {}, .body = std::string(kMoreThanTheKernelTakes, 'x')});
    answered.set_value();
  });
  SocketClient client(port(), /*receive_buffer_bytes=*/4096);
  client.Send("GET", "/");
  answered.get_future().wait();
  client.ShutdownSend();
  EXPECT_TRUE(client.Read().complete);
  EXPECT_TRUE(client.ReadEnd());
  WaitUntil([&] { return stats().connections == 0; }, "the connection is closed");
  EXPECT_EQ(stats().disconnected, 0u);
}

TEST_F(HttpServerTest, AConnectionEndsWhenItsHandlerThrowsAtTheNewsThatItsClientIsGone) {
  std::shared_ptr<Exchange> kept;
  std::promise<void> called;
  Serve({}, [&](HttpRequest, std::shared_ptr<Exchange> exchange) {
    exchange->SetOnGone([] { throw std::runtime_error("no memory for the news"); });
    kept = std::move(exchange);
    called.set_value();
  });
  SocketClient client(port());
  client.Send("GET", "/");
  called.get_future().wait();
  client.Close();
  WaitUntil([&] { return stats().connections == 0; }, "the connection is closed");
  EXPECT_EQ(stats().disconnected, 1u);
  server_.reset();
}

TEST_F(HttpServerTest, ABodyCountsAsMemoryUntilItIsDroppedThoughItsClientHasLeft) {
  HttpServerOptions options;
  options.max_bodies_bytes = 1500;
  std::promise<HttpRequest> first;
  std::atomic<int> calls{0};
  Serve(options, [&](HttpRequest request, std::shared_ptr<Exchange> exchange) {
    if (calls++ == 0) return first.set_value(std::move(request));
    exchange->Send({});
  });
  SocketClient leaving(port());
  leaving.Send("POST", "/", std::string(1000, ' '));
  HttpRequest request = first.get_future().get();
  leaving.Close();
  WaitUntil([&] { return stats().connections == 0; }, "the client is seen to have left");
  EXPECT_EQ(stats().body_bytes, 1000u);
  const ClientResponse refused = AskOnce(port(), "POST", "/", std::string(1000, ' '));
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  request.DropBody();
  EXPECT_EQ(request.body.capacity(), std::string().capacity());
  EXPECT_EQ(stats().body_bytes, 0u);
  EXPECT_EQ(AskOnce(port(), "POST", "/", std::string(1000, ' ')).status, 200);
  server_.reset();
}

TEST_F(HttpServerTest, ABodyOfUnknownLengthCountsInFullOnlyWhileItIsRead) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  Serve(options, [&](HttpRequest request, std::shared_ptr<Exchange> exchange) {
    exchange->Send({.headers = {}, .body = std::to_string(request.body_memory.bytes())});
  });
  SocketClient client(port());
  client.SendRaw("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
  WaitUntil([&] { return stats().body_bytes == 1000; }, "the most is reserved");
  client.SendRaw("0\r\n\r\n");
  EXPECT_EQ(client.Read().body, "5");
}

// More than the shared budget holds: an error, not silence.
TEST_F(HttpServerTest, AnAnswerAboveTheOutputBudgetIsRefusedByNameAndTheConnectionGoesOn) {
  HttpServerOptions options;
  options.max_outputs_bytes = 1 << 20;
  Serve(options, [](HttpRequest request, std::shared_ptr<Exchange> exchange) {
    const size_t bytes = request.path == "/large" ? size_t{2} << 20 : size_t{1} << 20;
    exchange->Send({.headers = {}, .body = std::string(bytes, 'x')});
  });
  SocketClient client(port());
  client.Send("GET", "/large");
  const ClientResponse refused = client.Read();
  EXPECT_EQ(refused.status, 413);
  EXPECT_THAT(refused.body, ::testing::HasSubstr("--max-unread-total"));
  client.Send("GET", "/fits");
  EXPECT_EQ(client.Read().body.size(), size_t{1} << 20);
  EXPECT_EQ(stats().slow_readers, 0u);
}

// Of every account: the ledger may end right after the server.
TEST_F(HttpServerTest, ItsEndGivesBackWhatOpenConnectionsHold) {
  MemoryLedger ledger;
  HttpServerOptions options;
  options.port = 0;
  auto server = HttpServer::Bind(options);
  ASSERT_TRUE(server.ok()) << server.error().message();
  server_ = std::move(server).value();
  server_->OpenAccounts(ledger);
  const auto live_bytes = [&] {
    std::vector<uint64_t> bytes;
    for (const MemoryAccount* account : ledger.accounts()) bytes.push_back(account->live_bytes());
    return bytes;
  };
  const Status serving = server_->Serve([](HttpRequest, const std::shared_ptr<Exchange>& exchange) {
    exchange->BeginStream({}, [] { return std::string(":"); });
    exchange->Write(std::string(kMoreThanTheKernelTakes, 'x'));
  });
  ASSERT_TRUE(serving.ok()) << serving.error().message();
  SocketClient reading(port(), /*receive_buffer_bytes=*/4096);
  reading.Send("GET", "/");
  SocketClient sending(port());
  sending.SendRaw("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nhello");
  WaitUntil([&] { return live_bytes()[1] == 1000 && live_bytes()[2] > 0; }, "a body and output are held");
  EXPECT_EQ(live_bytes()[2], kMoreThanTheKernelTakes);
  server_.reset();
  EXPECT_THAT(live_bytes(), ::testing::Each(0u));
}

}  // namespace
}  // namespace millrace::api
