#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "api/connect.h"
#include "api/scripted_server_testing.h"
#include "engine/load.h"
#include "loadgen/fairness.h"
#include "loadgen/load_report.h"
#include "loadgen/needles.h"
#include "loadgen/random_load.h"
#include "loadgen/soak.h"
#include "loadgen/soak_report.h"

// The load generator against the real server: over written answers, and over the small trained model.
namespace millrace::loadgen {
namespace {

LoadSession Open(uint16_t port) {
  LoadSessionOptions options;
  options.http.url = ServerUrl::Parse("127.0.0.1:" + std::to_string(port)).value();
  options.http.stall_timeout = std::chrono::seconds(60);
  Result<LoadSession> session = LoadSession::Open(std::move(options));
  MILLRACE_CHECK(session.ok(), session.error().message().c_str());
  return std::move(session).value();
}

class LoadOnScriptedServer : public api::ScriptedServerTest {
 protected:
  void StartWith(int64_t max_batch_tokens, std::chrono::microseconds step, int max_num_seqs = 16) {
    api::ScriptedServerOptions options;
    options.model.max_model_len = 100'000;
    options.model.max_batch_tokens = max_batch_tokens;
    options.model.step_delay = step;
    options.model.record_steps = false;
    options.engine.max_num_seqs = max_num_seqs;
    Start(std::move(options));
    server_->PlayByDefault("The bridge watches the queen near the tower and the boat.");
  }
};

TEST_F(LoadOnScriptedServer, TheServersOwnCountsAreReported) {
  StartWith(512, std::chrono::microseconds(200));
  LoadSession session = Open(port());
  EXPECT_EQ(session.client.options().model, "scripted");
  const RandomLoadResult result = RunRandomLoad(
      session, {.num_prompts = 10, .max_concurrency = 4, .input_tokens = 200, .output_tokens = 8});
  EXPECT_EQ(result.summary.succeeded, 10) << Text(result);
  EXPECT_NEAR(static_cast<double>(result.summary.prompt_tokens), 2000, 100);
  EXPECT_EQ(result.summary.completion_tokens, 80);
  EXPECT_TRUE(result.summary.tells_cached_tokens);
}

TEST_F(LoadOnScriptedServer, FairSchedulingKeepsStreamsAlive) {
  StartWith(64, std::chrono::microseconds(500));
  server_->PlayByDefault(TextMaker(1).Words(2000));
  LoadSession session = Open(port());
  FairnessOptions options{.decode_streams = 3,
                          .decode_input_tokens = 30,
                          .decode_output_tokens = 2000,
                          .solo_tokens = 16,
                          .solo_s = 0.05,
                          .long_prompts = 3,
                          .long_input_tokens = 3000,
                          .short_input_tokens = 40,
                          .output_tokens = 4};
  options.decode_temperature = 0;
  const Result<FairnessResult> result = RunFairness(session, options);
  ASSERT_TRUE(result.ok()) << result.error().message();
  EXPECT_EQ(result->streams.size(), 3u);
  ASSERT_TRUE(result->SlowestKept()) << Text(*result);
  EXPECT_GT(*result->SlowestKept(), 0.2) << Text(*result);
  EXPECT_NEAR(static_cast<double>(result->long_prompt_tokens), 9000, 500);
  ASSERT_TRUE(result->short_ttft_s);
  EXPECT_LT(*result->short_ttft_s, result->reading_s / 2);
  EXPECT_GT(result->PrefillTokS(), 0);
  EXPECT_EQ(result->no_rates, "");
  EXPECT_THAT(result->notes, testing::Not(testing::Contains(testing::HasSubstr("--max-num-seqs"))));
}

TEST_F(LoadOnScriptedServer, FairnessTellsWhenPlacesAreTooFew) {
  StartWith(64, std::chrono::microseconds(300), /*max_num_seqs=*/2);
  server_->PlayByDefault(TextMaker(1).Words(400));
  LoadSession session = Open(port());
  FairnessOptions options{.decode_streams = 2,
                          .decode_output_tokens = 300,
                          .solo_tokens = 8,
                          .solo_s = 0.01,
                          .long_prompts = 1,
                          .long_input_tokens = 300,
                          .short_input_tokens = 20,
                          .output_tokens = 2};
  const Result<FairnessResult> result = RunFairness(session, options);
  ASSERT_TRUE(result.ok()) << result.error().message();
  EXPECT_THAT(result->notes, testing::Contains(testing::HasSubstr("--max-num-seqs 4"))) << Text(*result);
  EXPECT_EQ(result->no_rates, "");
}

TEST_F(LoadOnScriptedServer, ASoakLeavesNothingBehind) {
  StartWith(512, std::chrono::microseconds(200));
  LoadSession session = Open(port());
  SoakOptions options{
      .duration_s = 1.5, .sessions = 6, .system_tokens = 60, .input_tokens = 20, .tool_tokens = 40};
  options.compact_at_tokens = 1500;
  options.disconnect_rate = 0.3;
  SoakResult result = RunSoak(session, options);
  EXPECT_THAT(result.Faults(), testing::IsEmpty()) << Text(result);
  EXPECT_GT(result.summary.left, 0);
  ASSERT_TRUE(result.before && result.after) << "the server has /metrics";
  EXPECT_EQ(result.after->running, 0);
  // Of what an account holds more than before. What is kept on purpose, up to its limit, is no leak. The
  // server notices only a moment later that a client has left, also the one that asked for `before`.
  const auto more_than_before = [&] {
    std::map<std::string, double> more;
    for (const auto& [account, bytes] : result.after->live_bytes) {
      const double left = bytes - result.before->live_bytes[account];
      if (account != "answers remembered" && left > 0) more[account] = left;
    }
    return more;
  };
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!more_than_before().empty() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    result.after = AskServerLoad(session.client.http());
    ASSERT_TRUE(result.after);
  }
  EXPECT_THAT(more_than_before(), testing::IsEmpty());
  EXPECT_EQ(server_->model().live_sequences(), 0);
}

// `millrace serve models/mini` without its command line.
class MiniServer {
 public:
  static std::unique_ptr<MiniServer> Start() {
    const char* const directory = MILLRACE_SOURCE_DIR "/models/mini";
    auto server = std::unique_ptr<MiniServer>(new MiniServer);
    engine::LoadOptions options;
    options.stepper.max_model_len = 8192;
    options.stepper.max_num_seqs = 4;
    options.stepper.max_batch_tokens = 256;
    server->loaded_.emplace(std::move(engine::LoadStepModel(directory, options)).value());
    server->tokenizer_.emplace(std::move(text::Tokenizer::Load(directory)).value());
    server->encoder_.emplace(std::move(text::ChatEncoder::Create(*server->tokenizer_)).value());
    server->engine_.emplace(std::move(server->loaded_->model), engine::EngineOptions{.max_num_seqs = 4},
                            server->loaded_->ledger.get());
    server->service_.emplace(*server->engine_, *server->encoder_,
                             api::ServiceOptions{.served_model_names = {"mini"}, .version = "test"},
                             server->loaded_->ledger.get());
    server->http_ = api::HttpServer::Bind({.port = 0}).value();
    MILLRACE_CHECK(api::Connect(*server->http_, *server->service_).ok(), "an I/O thread");
    return server;
  }
  ~MiniServer() { http_->Shutdown(std::chrono::steady_clock::now()); }

  uint16_t port() const { return http_->port(); }

 private:
  MiniServer() = default;

  std::optional<engine::LoadedModel> loaded_;
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<text::ChatEncoder> encoder_;
  std::optional<engine::Engine> engine_;
  std::optional<api::Service> service_;
  std::unique_ptr<api::HttpServer> http_;
};

TEST(LoadOnMini, FindsTheNeedlesAndAnswersTheSameTwice) {
  const std::unique_ptr<MiniServer> server = MiniServer::Start();
  LoadSession session = Open(server->port());
  const NeedlesResult needles = RunNeedles(session, {.needles = 1, .input_tokens = 900});
  EXPECT_EQ(needles.asked(), 3);
  EXPECT_EQ(needles.found(), 3) << Text(needles);
  EXPECT_NEAR(static_cast<double>(needles.summary.prompt_tokens), 2700, 150);
  SoakOptions options{
      .duration_s = 1.5, .sessions = 3, .system_tokens = 60, .input_tokens = 20, .tool_tokens = 40};
  options.output_tokens = 24;
  options.compact_at_tokens = 900;
  options.repeat_rate = options.disconnect_rate = 0.3;
  const SoakResult soak = RunSoak(session, options);
  EXPECT_THAT(soak.Faults(), testing::IsEmpty()) << Text(soak);
  EXPECT_GT(soak.compared, 0);
}

}  // namespace
}  // namespace millrace::loadgen
