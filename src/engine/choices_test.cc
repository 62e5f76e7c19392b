#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/ledger.h"
#include "engine/engine_rig.h"

namespace millrace::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A rig's engine that accounts for its memory, and sinks for the choices of one request.
struct ChoicesRig {
  explicit ChoicesRig(EngineOptions options) {
    auto owned = std::make_unique<ScriptedModel>(ScriptedModelOptions{.max_model_len = 100});
    model = owned.get();
    engine = std::make_unique<Engine>(std::move(owned), options, &ledger);
    for (const MemoryAccount* account : ledger.accounts())
      if (account->name() == "prompts") prompts = account;
  }
  ~ChoicesRig() { model->ReleaseSteps(); }

  Result<std::vector<SeqId>> Submit(GenerationRequest request, size_t choices) {
    sinks.clear();
    for (size_t c = 0; c < choices; ++c) sinks.push_back(std::make_shared<RecordingSink>());
    const std::vector<std::shared_ptr<TokenSink>> all(sinks.begin(), sinks.end());
    return engine->SubmitChoices(std::move(request), all);
  }

  MemoryLedger ledger;
  ScriptedModel* model = nullptr;
  std::unique_ptr<Engine> engine;
  const MemoryAccount* prompts = nullptr;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
};

TEST(Choices, TheChoicesOfARequestHoldItsPromptOnce) {
  ChoicesRig rig({.max_num_seqs = 1, .max_queue = 7});
  rig.model->PlayByDefault({20, 21});
  rig.model->HoldSteps();
  const auto ids = rig.Submit(Request(std::vector<TokenId>(80, 5)), 8);
  ASSERT_TRUE(ids.ok()) << ids.error().message();
  EXPECT_EQ(ids->size(), 8u);
  ASSERT_TRUE(rig.model->WaitUntilHeld());
  EXPECT_EQ(rig.prompts->live_bytes(), 80 * sizeof(TokenId));
  rig.model->ReleaseSteps();
  for (const auto& sink : rig.sinks) {
    EXPECT_EQ(Reason(sink), FinishReason::kStop);
    EXPECT_THAT(sink->tokens(), ElementsAre(20, 21, kEos));
  }
  // The last choice has let go of it when it began.
  EXPECT_EQ(rig.prompts->live_bytes(), 0u);
  EXPECT_EQ(rig.prompts->peak_bytes(), 80 * sizeof(TokenId));
}

// Sequences that run still have their lists, which are not their prompt's.
TEST(Choices, ListsAreHeldUntilTheLastChoiceHasEnded) {
  ChoicesRig rig({.max_num_seqs = 2});
  rig.model->PlayByDefault({20, 21});
  rig.model->HoldSteps();
  GenerationRequest request = Request({5, 6});
  request.sampling.logit_bias = {{.token = 30, .bias = 1}, {.token = 31, .bias = 1}};
  request.sampling.stop_token_ids = {33};
  ASSERT_TRUE(rig.Submit(std::move(request), 2).ok());
  ASSERT_TRUE(rig.model->WaitUntilHeld());
  const uint64_t lists = 2 * (2 * sizeof(LogitBias) + sizeof(TokenId));
  EXPECT_GE(rig.prompts->live_bytes(), lists);
  // The second choice may not have begun by the first's step, and needs the prompt then.
  EXPECT_LE(rig.prompts->live_bytes(), lists + 2 * sizeof(TokenId));
  rig.model->ReleaseSteps();
  for (const auto& sink : rig.sinks) EXPECT_EQ(Reason(sink), FinishReason::kStop);
  // A sequence is let go of behind its end.
  for (int i = 0; i < 1000 && rig.prompts->live_bytes() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(rig.prompts->live_bytes(), 0u);
}

TEST(Choices, ChoicesDrawWithSeedsThatCountUp) {
  ChoicesRig rig({.max_num_seqs = 2});
  rig.model->ComputeLogits(
      [](std::span<const TokenId>, std::span<float> logits) { std::ranges::fill(logits, 0.0F); });
  GenerationRequest request = Request({5, 6}, 12);
  request.sampling.temperature = 1;
  request.sampling.ignore_eos = true;
  request.sampling.seed = 7;
  ASSERT_TRUE(rig.Submit(request, 2).ok());
  const auto together = rig.sinks;
  for (size_t c = 0; c < together.size(); ++c) {
    EXPECT_EQ(Reason(together[c]), FinishReason::kLength);
    request.sampling.seed = 7 + c;
    ASSERT_TRUE(rig.Submit(request, 1).ok());
    EXPECT_EQ(Reason(rig.sinks.front()), FinishReason::kLength);
    EXPECT_EQ(rig.sinks.front()->tokens(), together[c]->tokens()) << "choice " << c;
  }
  EXPECT_NE(together[0]->tokens(), together[1]->tokens());
}

TEST(Choices, ChoicesThatFindNoPlacesAreRefusedTogether) {
  ChoicesRig rig({.max_num_seqs = 1, .max_queue = 3});
  rig.model->HoldSteps();
  ASSERT_TRUE(rig.Submit(Request({5}), 2).ok());
  const auto waiting = rig.sinks;
  const auto refused = rig.Submit(Request({6, 7}), 3);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("no place for 3 more"));
  ASSERT_TRUE(rig.Submit(Request({6, 7}), 2).ok()) << "none of the three has kept its place";
  const auto late = rig.sinks;
  // What lists take that can never wait is no matter of time.
  GenerationRequest biased = Request({5});
  biased.sampling.logit_bias.assign(200'000, {.token = 5, .bias = 1});
  const auto impossible = rig.Submit(std::move(biased), 1);
  ASSERT_FALSE(impossible.ok());
  EXPECT_EQ(impossible.error().code(), ErrorCode::kInvalidArgument);
  rig.model->ReleaseSteps();
  for (const auto& sink : waiting) EXPECT_EQ(Reason(sink), FinishReason::kStop);
  for (const auto& sink : late) EXPECT_EQ(Reason(sink), FinishReason::kStop);
}

}  // namespace
}  // namespace millrace::engine
