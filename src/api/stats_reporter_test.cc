#include "api/stats_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "api/scripted_server_testing.h"
#include "api/socket_client.h"

namespace millrace::api {
namespace {

TEST(Throughput, IsTheDifferenceOverTime) {
  engine::EngineStats before, now;
  before.prompt_tokens_total = 100;
  now.prompt_tokens_total = 1100;
  now.generation_tokens_total = 25;
  now.running = 2;
  now.waiting = 3;
  const auto throughput = ThroughputBetween(before, now, 10);
  ASSERT_TRUE(throughput);
  EXPECT_EQ(StatsLine(*throughput),
            "Engine 000: Avg prompt throughput: 100.0 tokens/s, Avg generation throughput: 2.5 tokens/s, "
            "Running: 2 reqs, Waiting: 3 reqs");
}

TEST(Throughput, AnIdleEngineHasNone) {
  engine::EngineStats stats;
  stats.prompt_tokens_total = 100;
  EXPECT_FALSE(ThroughputBetween(stats, stats, 10));
  engine::EngineStats waiting = stats;
  waiting.waiting = 1;
  EXPECT_TRUE(ThroughputBetween(stats, waiting, 10))
      << "a step that takes longer than the interval is no rest";
}

class StatsReporterTest : public ScriptedServerTest {};

TEST_F(StatsReporterTest, LogsOnlyWhileTheEngineIsBusy) {
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(SetUpLog("info").ok());
  Start();
  server_->PlayByDefault("one two three");
  {
    StatsReporter reporter(server_->engine(), {.interval = std::chrono::milliseconds(5)});
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // idle
    EXPECT_EQ(AskOnce(port(), "POST", "/v1/completions", R"({"prompt":"a"})").status, 200);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  spdlog::default_logger()->flush();
  const std::string log = ::testing::internal::GetCapturedStderr();
  size_t lines = 0;
  for (size_t at = 0; (at = log.find("Avg generation throughput", at)) != std::string::npos; ++at) ++lines;
  EXPECT_GE(lines, 1u) << log;
  EXPECT_LE(lines, 3u) << log;
}

}  // namespace
}  // namespace millrace::api
