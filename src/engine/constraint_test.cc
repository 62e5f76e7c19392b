#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <stdexcept>

#include "engine/engine_rig.h"
#include "engine/forced_prefix_constraint.h"
#include "engine/function_constraint.h"

namespace millrace::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

GenerationRequest Constrained(std::shared_ptr<const TokenConstraint> constraint, int64_t max_tokens = 100) {
  GenerationRequest request = Request({5, 6}, max_tokens);
  request.sampling.constraint = std::move(constraint);
  return request;
}

GenerationRequest Forced(ForcedPrefix prefix, int64_t max_tokens = 100) {
  return Constrained(std::make_shared<ForcedPrefixConstraint>(std::move(prefix)), max_tokens);
}

GenerationRequest Constrained(FunctionConstraint::Fn fn) {
  return Constrained(std::make_shared<FunctionConstraint>(std::move(fn)));
}

std::vector<std::vector<TokenId>> TokensOfSteps(const ScriptedModel& model) {
  std::vector<std::vector<TokenId>> tokens;
  for (const auto& step : model.recorded_steps()) {
    for (const auto& item : step) tokens.push_back(item.tokens);
  }
  return tokens;
}

TEST(ForcedPrefix, AtOnceComesFirstAndThenTheModelIsFree) {
  Rig rig;
  rig.model->PlayByDefault({20, 21, 22, 23});
  const auto started = rig.Start(Forced({.ids = {90, 91}}));
  EXPECT_EQ(Reason(started.sink), FinishReason::kStop);
  EXPECT_THAT(started.sink->tokens(), ElementsAre(90, 91, 22, 23, kEos));
  EXPECT_EQ(started.sink->WaitForFinish()->generated_tokens, 5);
  EXPECT_EQ(rig.engine->stats().generation_tokens_total, 5u);
  EXPECT_EQ(rig.engine->stats().prompt_tokens_total, 2u);
}

TEST(ForcedPrefix, WaitsForItsTokenAndGoesThroughTheModelInOnePiece) {
  Rig rig;
  rig.model->PlayByDefault({20, 21, 30, 0, 0, 0, 24});
  const auto started = rig.Start(Forced({.after = 30, .ids = {90, 91, 92}}));
  EXPECT_EQ(Reason(started.sink), FinishReason::kStop);
  EXPECT_THAT(started.sink->tokens(), ElementsAre(20, 21, 30, 90, 91, 92, 24, kEos));
  EXPECT_THAT(TokensOfSteps(*rig.model), ElementsAre(ElementsAre(5, 6), ElementsAre(20), ElementsAre(21),
                                                     ElementsAre(30, 90, 91, 92), ElementsAre(24)));
}

TEST(ForcedPrefix, HoldsTheEndBackUntilItHasBegun) {
  Rig rig;
  // Would end at once; its second choice leads to the awaited token.
  rig.model->ComputeLogits([](std::span<const TokenId> prefix, std::span<float> logits) {
    std::ranges::fill(logits, -50.0f);
    logits[kEos] = 3;
    logits[prefix.size() < 4 ? 20 : 30] = 2;
  });
  const auto started = rig.Start(Forced({.after = 30, .not_before = {kEos}, .ids = {90}}));
  EXPECT_EQ(Reason(started.sink), FinishReason::kStop);
  EXPECT_THAT(started.sink->tokens(), ElementsAre(20, 20, 30, 90, kEos));
}

TEST(ForcedPrefix, NothingToForceIsNoConstraint) {
  Rig rig;
  rig.model->PlayByDefault({20, 21});
  EXPECT_EQ(Reason(rig.Start(Forced({})).sink), FinishReason::kStop);
  const auto started = rig.Start(Forced({.after = 20}));
  EXPECT_EQ(Reason(started.sink), FinishReason::kStop);
  EXPECT_THAT(started.sink->tokens(), ElementsAre(20, 21, kEos));
}

TEST(ForcedPrefix, CountsAndIsCutByTheLimits) {
  Rig rig({.max_model_len = 8});
  rig.model->PlayByDefault(std::vector<TokenId>(20, 20));
  const std::vector<TokenId> run = {90, 91, 92, 93, 94, 95, 96, 97};
  const auto by_length = rig.Start(Forced({.ids = run}, 3));
  EXPECT_EQ(Reason(by_length.sink), FinishReason::kLength);
  EXPECT_THAT(by_length.sink->tokens(), ElementsAre(90, 91, 92));
  const auto by_context = rig.Start(Forced({.ids = run}));
  EXPECT_EQ(Reason(by_context.sink), FinishReason::kLength);
  EXPECT_THAT(by_context.sink->tokens(), ElementsAre(90, 91, 92, 93, 94, 95));
  // Cut before the awaited token came: no run.
  const auto reasoning = rig.Start(Forced({.after = 30, .ids = run}, 3));
  EXPECT_EQ(Reason(reasoning.sink), FinishReason::kLength);
  EXPECT_THAT(reasoning.sink->tokens(), ElementsAre(20, 20, 20));
}

TEST(ForcedPrefix, AStopTokenInTheRunEndsTheSequence) {
  Rig rig;
  GenerationRequest request = Forced({.ids = {90, 91, 92}});
  request.sampling.stop_token_ids = {91};
  request.sampling.min_tokens = 50;  // the constraint goes before it
  const auto started = rig.Start(request);
  EXPECT_EQ(Reason(started.sink), FinishReason::kStop);
  EXPECT_THAT(started.sink->tokens(), ElementsAre(90, 91));
}

TEST(ForcedPrefix, EveryChoiceOfARequestHasItsOwn) {
  Rig rig;
  rig.model->PlayByDefault({20, 30, 0, 0, 24, 25});
  const GenerationRequest request = Forced({.after = 30, .ids = {90, 91}});
  const auto first = rig.StartHeld(request);
  rig.RunSteps(2);  // the first waits for its token while the others begin
  std::vector<Rig::Started> choices = {first, rig.Start(request), rig.Start(request)};
  rig.model->ReleaseSteps();
  for (const auto& choice : choices) {
    EXPECT_EQ(Reason(choice.sink), FinishReason::kStop);
    EXPECT_THAT(choice.sink->tokens(), ElementsAre(20, 30, 90, 91, 24, 25, kEos));
  }
}

TEST(ForcedPrefix, WithLogprobsEachTokenHasItsOwnAndTheAnswerIsTheSame) {
  Rig rig({.vocab_size = 100});
  rig.model->ComputeLogits([](std::span<const TokenId> prefix, std::span<float> logits) {
    std::ranges::fill(logits, 0.0f);
    logits[prefix.size()] = 5;
  });
  GenerationRequest request = Forced({.ids = {90, 91, 92}}, 5);
  const auto plain = rig.Start(request);
  EXPECT_EQ(Reason(plain.sink), FinishReason::kLength);
  request.sampling.logprobs = 1;
  const auto started = rig.Start(request);
  EXPECT_EQ(Reason(started.sink), FinishReason::kLength);
  EXPECT_THAT(started.sink->tokens(), ElementsAre(90, 91, 92, 5, 6));
  EXPECT_EQ(started.sink->tokens(), plain.sink->tokens());
  const double log_total = std::log(std::exp(5.0) + 99);
  const auto events = started.sink->events();
  for (size_t i = 0; i < events.size(); ++i) {
    ASSERT_TRUE(events[i].chosen.has_value()) << i;
    EXPECT_NEAR(events[i].chosen->logprob, (i < 3 ? 0 : 5) - log_total, 1e-5) << i;
    ASSERT_EQ(events[i].top.size(), 1u);
    EXPECT_EQ(events[i].top[0].token, static_cast<TokenId>(2 + i));
  }
}

TEST(Constraint, ALongRunSharesStepsWithOthersAndIsCancelledLikeThem) {
  Rig rig({.max_batch_tokens = 4}, {.max_num_seqs = 2, .prefill_chunk = 4});
  rig.model->PlayByDefault(std::vector<TokenId>(300, 20));
  std::vector<TokenId> run(100);
  std::iota(run.begin(), run.end(), 100);
  const auto other = rig.StartHeld(Request({5}, 300));
  const auto forced = rig.Start(Forced({.ids = run}, 300));
  rig.RunSteps(10);
  // The run is reported as soon as it is certain; the model still reads it while the other goes on.
  EXPECT_THAT(forced.sink->tokens(), ElementsAreArray(run));
  EXPECT_GE(other.sink->tokens().size(), 9u);
  rig.engine->Cancel(forced.id);
  rig.RunSteps(1);
  EXPECT_EQ(Reason(forced.sink), FinishReason::kCancelled);
  EXPECT_EQ(rig.model->live_sequences(), 1);
  rig.model->ReleaseSteps();
  EXPECT_EQ(Reason(other.sink), FinishReason::kLength);
  for (const auto& step : rig.model->recorded_steps()) {
    size_t tokens = 0;
    for (const auto& item : step) tokens += item.tokens.size();
    EXPECT_LE(tokens, 4u);
  }
}

TEST(Constraint, SetsLeaveTheBestOfTheirTokens) {
  Rig rig;
  rig.model->ComputeLogits([](std::span<const TokenId>, std::span<float> logits) {
    for (size_t t = 0; t < logits.size(); ++t) logits[t] = static_cast<float>(t);
  });
  const std::vector<TokenId> ids = {70, 7, 170};
  const std::vector<TokenId> barred = {255, 254};
  std::vector<uint64_t> mask(4);
  mask[1] = uint64_t{1} << 2 | uint64_t{1} << 5;  // 66 and 69
  const auto started = rig.Start(Constrained([&](std::span<const TokenId> generated) -> NextToken {
    switch (generated.size()) {
      case 0:
        return OneOfTokens{ids};
      case 1:
        return OneOfMask{mask};
      case 2:
        return AnyTokenBut{barred};
      case 3:
        return AnyToken{};
      default:
        return EndOfSequence{};
    }
  }));
  EXPECT_EQ(Reason(started.sink), FinishReason::kStop);
  EXPECT_THAT(started.sink->tokens(), ElementsAre(170, 69, 253, 255));
}

TEST(Constraint, MayEndTheSequenceBeforeItsFirstToken) {
  Rig rig;
  const auto started = rig.Start(Constrained([](auto) { return EndOfSequence{}; }));
  EXPECT_EQ(Reason(started.sink), FinishReason::kStop);
  EXPECT_THAT(started.sink->tokens(), ElementsAre());
  EXPECT_EQ(started.sink->WaitForFinish()->generated_tokens, 0);
}

TEST(Constraint, RunsMayFollowRuns) {
  Rig rig;
  const std::vector<TokenId> runs = {90, 91, 92, 93, 94, 95};
  const auto started = rig.Start(Constrained([&](std::span<const TokenId> generated) -> NextToken {
    if (generated.size() == runs.size()) return EndOfSequence{};
    return ForcedTokens{std::span(runs).subspan(generated.size(), 2)};
  }));
  EXPECT_EQ(Reason(started.sink), FinishReason::kStop);
  EXPECT_THAT(started.sink->tokens(), ElementsAreArray(runs));
  EXPECT_EQ(rig.model->recorded_steps().size(), 1u) << "nothing was left to ask the model";
}

TEST(Constraint, OneThatFailsEndsOnlyItsRequest) {
  Rig rig;
  rig.model->PlayByDefault({20, 21, 22});
  const auto bystander = rig.StartHeld(Request({9}));
  const auto throws = rig.Start(Constrained([](std::span<const TokenId> generated) -> NextToken {
    if (generated.size() == 2) throw std::runtime_error("grammar broke");
    return AnyToken{};
  }));
  const std::vector<TokenId> outside = {256};
  const auto names = rig.Start(Constrained([&](auto) { return ForcedTokens{outside}; }));
  rig.model->ReleaseSteps();

  EXPECT_EQ(Reason(throws.sink), FinishReason::kError);
  EXPECT_THAT(throws.sink->tokens(), ElementsAre(20, 21));
  EXPECT_THAT(throws.sink->WaitForFinish()->error->message(),
              HasSubstr("the request's constraint failed: grammar broke"));
  EXPECT_EQ(Reason(names.sink), FinishReason::kError);
  EXPECT_THAT(names.sink->tokens(), ElementsAre());
  EXPECT_THAT(names.sink->WaitForFinish()->error->message(), HasSubstr("it names token 256"));
  EXPECT_EQ(Reason(bystander.sink), FinishReason::kStop);
  EXPECT_EQ(rig.model->live_sequences(), 0);
}

class Uncloneable : public TokenConstraint {
 public:
  std::unique_ptr<TokenConstraint> Clone() const override { throw std::runtime_error("no memory"); }
  void OnToken(TokenId) override {}
  NextToken Next() override { return AnyToken{}; }
};

TEST(Constraint, OneThatCannotBeClonedEndsOnlyItsRequest) {
  Rig rig({}, {.max_num_seqs = 1});
  const auto started = rig.Start(Constrained(std::make_shared<Uncloneable>()));
  EXPECT_EQ(Reason(started.sink), FinishReason::kError);
  EXPECT_THAT(started.sink->WaitForFinish()->error->message(), HasSubstr("no memory"));
  const EngineStats stats = rig.engine->stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(rig.model->live_sequences(), 0);
  EXPECT_EQ(Reason(rig.Start(Request({5})).sink), FinishReason::kStop);  // the slot is free again
}

}  // namespace
}  // namespace millrace::engine
