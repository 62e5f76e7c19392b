#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "engine/engine_rig.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Engine, PlaysAnAnswerToItsEndToken) {
  Rig rig;
  rig.model->Play({10, 11, 12}, {20, 21, 22});
  const auto started = rig.Start(Request({10, 11, 12}));
  const auto finish = started.sink->WaitForFinish();
  ASSERT_TRUE(finish.has_value());
  EXPECT_EQ(finish->reason, FinishReason::kStop);
  EXPECT_EQ(finish->prompt_tokens, 3);
  EXPECT_EQ(finish->generated_tokens, 4);
  EXPECT_EQ(finish->cached_tokens, 0);
  EXPECT_FALSE(finish->error.has_value());
  EXPECT_THAT(started.sink->tokens(), ElementsAre(20, 21, 22, kEos));  // the stop token is the last event
  const EngineStats stats = rig.engine->stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.prompt_tokens_total, 3u);
  EXPECT_EQ(stats.generation_tokens_total, 4u);
  EXPECT_EQ(stats.finished_stop, 1u);
  EXPECT_EQ(rig.model->live_sequences(), 0);
}

TEST(Engine, EndsByLengthByStopTokenAndByContext) {
  Rig rig({.max_model_len = 8});
  rig.model->PlayByDefault({20, 21, 22, 23, 24, 25, 26, 27});

  const auto by_length = rig.Start(Request({5}, 2));
  EXPECT_EQ(Reason(by_length.sink), FinishReason::kLength);
  EXPECT_THAT(by_length.sink->tokens(), ElementsAre(20, 21));

  GenerationRequest request = Request({5});
  request.sampling.stop_token_ids = {99, 22};
  const auto by_stop = rig.Start(request);
  EXPECT_EQ(Reason(by_stop.sink), FinishReason::kStop);
  EXPECT_THAT(by_stop.sink->tokens(), ElementsAre(20, 21, 22));

  const auto by_context = rig.Start(Request({5, 6, 7, 8, 9}));
  EXPECT_EQ(Reason(by_context.sink), FinishReason::kLength);
  EXPECT_THAT(by_context.sink->tokens(), ElementsAre(20, 21, 22));

  const auto one_left = rig.Start(Request({5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(Reason(one_left.sink), FinishReason::kLength);
  EXPECT_THAT(one_left.sink->tokens(), ElementsAre(20));
  EXPECT_EQ(rig.engine->stats().finished_length, 3u);
}

TEST(Engine, IgnoreEosGoesOnToTheLimit) {
  Rig rig;
  GenerationRequest request = Request({5}, 6);
  request.sampling.ignore_eos = true;
  rig.model->PlayByDefault({20, kEos, 21});
  const auto started = rig.Start(request);
  EXPECT_EQ(Reason(started.sink), FinishReason::kLength);
  EXPECT_THAT(started.sink->tokens(), ElementsAre(20, kEos, 21, kEos, kEos, kEos));
}

TEST(Engine, NoStopTokenBeforeMinTokens) {
  Rig rig;
  rig.model->ComputeLogits([](std::span<const TokenId>, std::span<float> logits) {
    std::ranges::fill(logits, 0.0f);
    logits[kEos] = 3;
    logits[22] = 2;
    logits[20] = 1;
  });
  GenerationRequest request = Request({5});
  request.sampling.stop_token_ids = {22};
  request.sampling.min_tokens = 3;
  const auto by_end = rig.Start(request);
  EXPECT_EQ(Reason(by_end.sink), FinishReason::kStop);
  EXPECT_THAT(by_end.sink->tokens(), ElementsAre(20, 20, 20, kEos));
  // An end token that is ignored does not end, and is not withheld.
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = 4;
  const auto ignored = rig.Start(request);
  EXPECT_EQ(Reason(ignored.sink), FinishReason::kLength);
  EXPECT_THAT(ignored.sink->tokens(), ElementsAre(kEos, kEos, kEos, kEos));
}

TEST(Engine, PenaltiesSeeThePromptAndTheAnswer) {
  Rig rig({}, {.max_num_seqs = 1});
  // 20 over 21 over 22 over 23, a logit apart.
  rig.model->ComputeLogits([](std::span<const TokenId>, std::span<float> logits) {
    std::ranges::fill(logits, -100.0f);
    for (int i = 0; i < 4; ++i) logits[static_cast<size_t>(20 + i)] = 8 - static_cast<float>(i);
  });
  const auto tokens = [&](std::vector<TokenId> prompt, auto change) {
    GenerationRequest request = Request(std::move(prompt), 4);
    change(request.sampling);
    const auto started = rig.Start(request);
    EXPECT_EQ(Reason(started.sink), FinishReason::kLength);
    return started.sink->tokens();
  };
  const auto none = [](SamplingParams&) {};
  const auto presence = [](SamplingParams& s) { s.presence_penalty = 1.5f; };
  const auto frequency = [](SamplingParams& s) { s.frequency_penalty = 0.75f; };
  const auto repetition = [](SamplingParams& s) { s.repetition_penalty = 2; };
  EXPECT_THAT(tokens({5}, none), ElementsAre(20, 20, 20, 20));
  EXPECT_THAT(tokens({20}, presence), ElementsAre(20, 21, 20, 20));
  EXPECT_THAT(tokens({20}, frequency), ElementsAre(20, 20, 21, 20));
  EXPECT_THAT(tokens({20, 22}, repetition), ElementsAre(21, 23, 20, 20));
  EXPECT_THAT(tokens({5}, repetition), ElementsAre(20, 21, 22, 23)) << "the slot forgets the sequence before";
  EXPECT_THAT(tokens({5},
                     [](SamplingParams& s) {
                       s.logit_bias = {{20, -100}, {23, 2.5f}};
                     }),
              ElementsAre(23, 23, 23, 23));
}

// A rigged sampler that cycles a phrase of 32 tokens.
TEST(Engine, EndsAGenerationThatOnlyRepeatsAPhrase) {
  const auto cycling = [](std::span<const TokenId> prefix, std::span<float> logits) {
    std::ranges::fill(logits, -100.0f);
    logits[100 + prefix.size() % 32] = 0;
  };
  const auto run = [&](int64_t limit, auto change) {
    Rig rig({.max_model_len = 8192}, {.repetition_limit_tokens = limit});
    rig.model->ComputeLogits(cycling);
    GenerationRequest request = Request({5}, 6000);
    change(request.sampling);
    const auto started = rig.Start(request);
    const FinishReason reason = Reason(started.sink);
    EXPECT_EQ(rig.engine->stats().finished_repetition, reason == FinishReason::kRepetition);
    return std::pair(reason, started.sink->tokens().size());
  };
  const auto none = [](SamplingParams&) {};
  EXPECT_EQ(run(EngineOptions().repetition_limit_tokens, none),
            std::pair(FinishReason::kRepetition, size_t{4096}));
  EXPECT_EQ(run(1024, none), std::pair(FinishReason::kRepetition, size_t{1024}));
  EXPECT_EQ(run(1024, [](SamplingParams& s) { s.min_tokens = 2000; }),
            std::pair(FinishReason::kRepetition, size_t{2000}));
  const std::pair in_full(FinishReason::kLength, size_t{6000});
  EXPECT_EQ(run(0, none), in_full);
  EXPECT_EQ(run(1024, [](SamplingParams& s) { s.ignore_eos = true; }), in_full);
  EXPECT_EQ(FinishReasonName(FinishReason::kRepetition), "repetition");
}

TEST(Engine, RefusesBadRequestsAtOnce) {
  Rig rig({.vocab_size = 256, .max_model_len = 16});
  auto sink = std::make_shared<RecordingSink>();
  const auto refused = [&](GenerationRequest request) {
    const Result<SeqId> id = rig.engine->Submit(std::move(request), sink);
    EXPECT_FALSE(id.ok());
    EXPECT_EQ(id.error().code(), ErrorCode::kInvalidArgument);
    return id.ok() ? std::string() : id.error().message();
  };
  EXPECT_THAT(refused(Request({})), HasSubstr("prompt has no tokens"));
  EXPECT_THAT(refused(Request(std::vector<TokenId>(16, 5))), HasSubstr("prompt has 16 tokens"));
  EXPECT_THAT(refused(Request({5, 256})), HasSubstr("prompt token 1 is id 256"));
  EXPECT_THAT(refused(Request({5}, 0)), HasSubstr("max_tokens is 0"));
  GenerationRequest request = Request({5});
  request.sampling.top_p = 2;
  EXPECT_THAT(refused(request), HasSubstr("top_p is 2"));
  EXPECT_EQ(sink->finishes(), 0);
  EXPECT_EQ(rig.engine->stats().waiting, 0);
}

TEST(Engine, DecodesTogetherAndPrefillsInFairChunks) {
  Rig rig({.max_batch_tokens = 8}, {.max_num_seqs = 3, .prefill_chunk = 8});
  rig.model->PlayByDefault({20, 21, 22, 23, 24, 25});
  // Held with one decoding; then two prompts of 12 join.
  const auto first = rig.StartHeld(Request({5}));
  rig.RunSteps(1);
  const auto second = rig.Start(Request(std::vector<TokenId>(12, 6)));
  const auto third = rig.Start(Request(std::vector<TokenId>(12, 7)));
  rig.model->ReleaseSteps();
  for (const auto& started : {first, second, third}) EXPECT_EQ(Reason(started.sink), FinishReason::kStop);
  int together = 0;
  for (const auto& step : rig.model->recorded_steps()) {
    size_t tokens = 0;
    for (const auto& item : step) tokens += item.tokens.size();
    EXPECT_LE(tokens, 8u);
    if (step.size() == 3) {
      ++together;
      EXPECT_EQ(step[0].sequence, 1u);
      EXPECT_EQ(step[0].tokens.size(), 1u);
    }
  }
  EXPECT_GE(together, 4);  // 24 prompt tokens at 7 a step, with the first decoding in each
  EXPECT_EQ(rig.engine->stats().prompt_tokens_total, 25u);
}

// A token takes 0.1 ms: whole chunks would make whoever decodes wait for 0.2 s each time.
TEST(Engine, ReadsInSmallerChunksWhileOthersDecode) {
  const auto largest_beside_decoding = [](PaceOptions pace) {
    Rig rig({.max_model_len = 20'000, .max_batch_tokens = 2048, .token_delay = 100us},
            {.prefill_chunk = 2048, .pace = pace});
    rig.model->PlayByDefault(std::vector<TokenId>(10'000, 20));
    const auto decoding = rig.Start(Request({5}, 10'000));
    EXPECT_TRUE(decoding.sink->WaitForTokens(5));
    const auto reading = rig.Start(Request(std::vector<TokenId>(6000, 6), 1));
    EXPECT_EQ(Reason(reading.sink), FinishReason::kLength);
    size_t largest = 0;
    for (const auto& step : rig.model->recorded_steps())
      if (step.size() == 2) largest = std::max(largest, step[1].tokens.size());
    return largest;
  };
  EXPECT_EQ(largest_beside_decoding({.max_gap_seconds = 0, .min_decode_share = 0}), 2047u);
  const size_t paced = largest_beside_decoding({.max_gap_seconds = 0.02, .min_decode_share = 0});
  EXPECT_LE(paced, 200u);
  EXPECT_GE(paced, 20u);
}

TEST(Engine, CancelFreesTheSlotWhileQueuedPrefillingAndDecoding) {
  Rig rig({.max_batch_tokens = 4}, {.max_num_seqs = 2, .prefill_chunk = 4});
  rig.model->PlayByDefault(std::vector<TokenId>(1000, 20));
  const auto decoding = rig.StartHeld(Request({5}, 1000));
  rig.RunSteps(2);
  const auto prefilling = rig.Start(Request(std::vector<TokenId>(100, 6)));
  const auto queued = rig.Start(Request({7}));
  rig.RunSteps(2);
  EXPECT_EQ(rig.engine->stats().running, 2);
  EXPECT_EQ(rig.engine->stats().waiting, 1);
  EXPECT_EQ(rig.model->live_sequences(), 2);

  rig.engine->Cancel(queued.id);
  rig.RunSteps(1);
  EXPECT_EQ(Reason(queued.sink), FinishReason::kCancelled);
  EXPECT_EQ(rig.engine->stats().waiting, 0);

  rig.engine->Cancel(prefilling.id);
  rig.RunSteps(1);
  EXPECT_EQ(Reason(prefilling.sink), FinishReason::kCancelled);
  EXPECT_TRUE(prefilling.sink->tokens().empty());
  EXPECT_EQ(rig.engine->stats().running, 1);
  EXPECT_EQ(rig.model->live_sequences(), 1);

  rig.engine->Cancel(decoding.id);
  rig.model->AllowSteps(1);  // within one step
  EXPECT_EQ(Reason(decoding.sink), FinishReason::kCancelled);
  EXPECT_GE(decoding.sink->tokens().size(), 5u);
  const EngineStats stats = rig.engine->stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.finished_cancelled, 3u);
  EXPECT_EQ(rig.model->live_sequences(), 0);

  rig.engine->Cancel(decoding.id);    // finished
  rig.engine->Cancel(SeqId{999999});  // unknown
  rig.model->ReleaseSteps();
  EXPECT_EQ(Reason(rig.Start(Request({5}, 1)).sink), FinishReason::kLength);
}

TEST(Engine, AFullQueueRefusesAtOnceAndRecovers) {
  Rig rig({}, {.max_num_seqs = 1, .max_queue = 2});
  std::vector<Rig::Started> started = {rig.StartHeld(Request({5}))};
  for (int i = 0; i < 2; ++i) started.push_back(rig.Start(Request({5})));
  auto sink = std::make_shared<RecordingSink>();
  const Result<SeqId> refused = rig.engine->Submit(Request({5}), sink);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("1 slots, 2 places in the queue"));
  rig.model->ReleaseSteps();
  for (const auto& one : started) EXPECT_EQ(Reason(one.sink), FinishReason::kStop);
  EXPECT_EQ(Reason(rig.Start(Request({5})).sink), FinishReason::kStop);
  EXPECT_EQ(sink->finishes(), 0);
}

// Whoever ends makes room for the next within a step: all slots stay in use while two wait.
TEST(Engine, SteadyArrivalsFillEverySlot) {
  constexpr int kSlots = 4;
  Rig rig({}, {.max_num_seqs = kSlots});
  rig.model->PlayByDefault({20, 21, 22, 23});
  std::vector<Rig::Started> started = {rig.StartHeld(Request({5}))};
  size_t ended = 0;
  int full_steps = 0;
  for (TokenId next = 6; next < 60; ++next) {
    // Arrivals one by one, as in a closed loop of kSlots + 2 clients.
    while (std::ssize(started) - static_cast<ptrdiff_t>(ended) < kSlots + 2)
      started.push_back(rig.Start(Request({next, static_cast<TokenId>(started.size() % 200)})));
    rig.RunSteps(1);
    const EngineStats stats = rig.engine->stats();
    EXPECT_TRUE(stats.waiting == 0 || stats.running == kSlots) << "at step " << next;
    full_steps += stats.running == kSlots;
    ended = stats.finished_stop;
  }
  EXPECT_GT(ended, 20u);
  EXPECT_GT(full_steps, 40) << "of 54";
  rig.model->ReleaseSteps();
  for (const auto& one : started) EXPECT_EQ(Reason(one.sink), FinishReason::kStop);
}

TEST(Engine, AFullPoolMakesRequestsWaitInOrder) {
  Rig rig({.pool_tokens = 30}, {.max_num_seqs = 4});
  rig.model->PlayByDefault(std::vector<TokenId>(50, 20));
  const auto first = rig.StartHeld(Request(std::vector<TokenId>(20, 5), 9));
  const auto second = rig.Start(Request(std::vector<TokenId>(15, 6), 2));  // does not fit beside the first
  const auto third = rig.Start(Request(std::vector<TokenId>(2, 7), 2));    // would, but does not overtake
  rig.RunSteps(3);
  EXPECT_EQ(rig.engine->stats().running, 1);
  EXPECT_EQ(rig.engine->stats().waiting, 2);
  rig.model->ReleaseSteps();
  for (const auto& started : {first, second, third}) EXPECT_EQ(Reason(started.sink), FinishReason::kLength);
  EXPECT_EQ(rig.model->reserved_tokens(), 0);
}

TEST(Engine, ACancelledHeadLetsTheNextTryThePool) {
  Rig rig({.pool_tokens = 30}, {.max_num_seqs = 4});
  rig.model->PlayByDefault(std::vector<TokenId>(50, 20));
  const auto first = rig.StartHeld(Request(std::vector<TokenId>(10, 5), 9));
  const auto second = rig.Start(Request(std::vector<TokenId>(25, 6), 5));
  const auto third = rig.Start(Request(std::vector<TokenId>(5, 7), 4));
  rig.RunSteps(2);
  EXPECT_EQ(rig.engine->stats().waiting, 2);
  rig.engine->Cancel(second.id);
  rig.RunSteps(1);
  EXPECT_EQ(rig.engine->stats().running, 2);
  rig.model->ReleaseSteps();
  EXPECT_EQ(Reason(first.sink), FinishReason::kLength);
  EXPECT_EQ(Reason(third.sink), FinishReason::kLength);
}

// Logits of a token that follows from the whole prefix.
void CountUp(std::span<const TokenId> prefix, std::span<float> logits) {
  std::ranges::fill(logits, 0.0f);
  logits[2 + (prefix.size() * 7 + static_cast<size_t>(prefix[0])) % 100] = 10;
}

TEST(Engine, TheLatestGivesWayToTheEarlierOnesAndGoesOnAsIfNothingHadHappened) {
  Rig alone;
  alone.model->ComputeLogits(CountUp);
  Rig rig({.pool_tokens = 60, .reuse_prefixes = true}, {.max_num_seqs = 4});
  rig.model->ComputeLogits(CountUp);
  std::vector<Rig::Started> expected, started;
  for (TokenId first = 5; first < 9; ++first) {
    expected.push_back(alone.Start(Request({first, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 30)));
    if (first == 5) {
      started.push_back(rig.StartHeld(Request({first, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 30)));
    } else {
      started.push_back(rig.Start(Request({first, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 30)));
    }
  }
  rig.model->ReleaseSteps();
  for (size_t i = 0; i < started.size(); ++i) {
    EXPECT_EQ(Reason(started[i].sink), FinishReason::kLength);
    EXPECT_EQ(Reason(expected[i].sink), FinishReason::kLength);
    EXPECT_EQ(started[i].sink->tokens(), expected[i].sink->tokens()) << i;
    EXPECT_EQ(started[i].sink->WaitForFinish()->cached_tokens, 0) << "its own past is no reuse";
  }
  const EngineStats stats = rig.engine->stats();
  EXPECT_GE(stats.preemptions_total, 2u);
  EXPECT_LE(stats.preemptions_total, 6u) << "each only once for every end of another";
  EXPECT_LE(stats.prompt_tokens_total, 40u + stats.preemptions_total)
      << "what a cache keeps is not read again";
  EXPECT_EQ(stats.generation_tokens_total, 120u);
  EXPECT_EQ(stats.finished_length, 4u);
  EXPECT_EQ(rig.model->reserved_tokens(), 0);
}

TEST(Engine, APreemptedRequestCanBeCancelled) {
  Rig rig({.pool_tokens = 30}, {.max_num_seqs = 2});
  rig.model->ComputeLogits(CountUp);
  const auto first = rig.StartHeld(Request(std::vector<TokenId>(12, 5), 15));
  const auto second = rig.Start(Request(std::vector<TokenId>(12, 6), 15));
  rig.RunSteps(8);
  EXPECT_EQ(rig.engine->stats().preemptions_total, 1u);
  EXPECT_EQ(rig.engine->stats().running, 1);
  EXPECT_EQ(rig.engine->stats().waiting, 1);
  rig.engine->Cancel(second.id);
  rig.RunSteps(1);
  EXPECT_EQ(Reason(second.sink), FinishReason::kCancelled);
  EXPECT_GE(second.sink->tokens().size(), 2u);
  EXPECT_EQ(rig.engine->stats().waiting, 0);
  rig.model->ReleaseSteps();
  EXPECT_EQ(Reason(first.sink), FinishReason::kLength);
}

TEST(Engine, SaysHowManyTokensACacheGave) {
  Rig rig({.reuse_prefixes = true});
  EXPECT_EQ(rig.Start(Request({5, 6, 7, 8}, 1)).sink->WaitForFinish()->cached_tokens, 0);
  EXPECT_EQ(rig.Start(Request({5, 6, 7, 9, 9}, 1)).sink->WaitForFinish()->cached_tokens, 3);
  EXPECT_EQ(rig.Start(Request({5, 6, 7, 8}, 1)).sink->WaitForFinish()->cached_tokens, 3);
  const EngineStats stats = rig.engine->stats();
  EXPECT_EQ(stats.prefix_query_tokens, 13u);
  EXPECT_EQ(stats.prefix_hit_tokens, 6u);
  EXPECT_EQ(stats.prompt_tokens_total, 7u);
}

TEST(Engine, WhatNeverFitsFailsInsteadOfWaiting) {
  Rig rig({.pool_tokens = 30});
  const auto grows = [&] {
    rig.model->PlayByDefault(std::vector<TokenId>(50, 20));
    return rig.Start(Request({5}, 50));
  };
  for (const auto& started : {rig.Start(Request(std::vector<TokenId>(31, 5), 1)), grows()}) {
    const auto finish = started.sink->WaitForFinish();
    ASSERT_TRUE(finish.has_value());
    EXPECT_EQ(finish->reason, FinishReason::kError);
    ASSERT_TRUE(finish->error.has_value());
    EXPECT_EQ(finish->error->code(), ErrorCode::kResourceExhausted);
  }
  EXPECT_EQ(rig.engine->stats().finished_error, 2u);
  EXPECT_EQ(rig.engine->stats().waiting, 0);
  rig.model->PlayByDefault({});
  EXPECT_EQ(Reason(rig.Start(Request({5}, 3)).sink), FinishReason::kStop);
}

TEST(Engine, AModelThatThrowsEndsItsBatchAndNotTheProcess) {
  Rig rig;
  rig.model->FailSteps(1);
  const auto started = rig.Start(Request({5}));
  const auto finish = started.sink->WaitForFinish();
  ASSERT_TRUE(finish.has_value());
  EXPECT_EQ(finish->reason, FinishReason::kError);
  EXPECT_THAT(finish->error->message(), HasSubstr("scripted failure"));
  EXPECT_EQ(rig.model->live_sequences(), 0);
  EXPECT_EQ(Reason(rig.Start(Request({5})).sink), FinishReason::kStop);

  rig.model->FailNewSequence(1, Error(ErrorCode::kIo, "drive gone"));
  const auto no_state = rig.Start(Request({5}));
  EXPECT_EQ(Reason(no_state.sink), FinishReason::kError);
  EXPECT_EQ(no_state.sink->WaitForFinish()->error->message(), "drive gone");
}

TEST(Engine, UnusableLogitsEndOnlyTheirRequest) {
  Rig rig;
  rig.model->ComputeLogits([](std::span<const TokenId> prefix, std::span<float> logits) {
    std::ranges::fill(logits, 0.0f);
    if (prefix[0] == 6 && prefix.size() == 3) logits[17] = std::numeric_limits<float>::quiet_NaN();
  });
  const auto good = rig.StartHeld(Request({5}, 10));
  const auto bad = rig.Start(Request({6}, 10));
  rig.model->ReleaseSteps();
  EXPECT_EQ(Reason(good.sink), FinishReason::kLength);
  EXPECT_EQ(Reason(bad.sink), FinishReason::kError);
  EXPECT_EQ(bad.sink->tokens().size(), 2u);
  EXPECT_THAT(bad.sink->WaitForFinish()->error->message(), HasSubstr("logit of token 17 is nan"));
}

class ThrowingSink : public RecordingSink {
 public:
  explicit ThrowingSink(bool on_finish_too) : on_finish_too_(on_finish_too) {}
  void OnToken(const TokenEvent& event) override {
    RecordingSink::OnToken(event);
    if (tokens().size() == 2) throw std::runtime_error("receiver broke");
  }
  void OnFinish(const FinishEvent& event) override {
    RecordingSink::OnFinish(event);
    if (on_finish_too_) throw 7;
  }

 private:
  bool on_finish_too_;
};

TEST(Engine, AReceiverThatThrowsEndsOnlyItsRequest) {
  Rig rig;
  rig.model->PlayByDefault({20, 21, 22, 23});
  for (bool on_finish_too : {false, true}) {
    auto sink = std::make_shared<ThrowingSink>(on_finish_too);
    rig.model->HoldSteps();
    ASSERT_TRUE(rig.engine->Submit(Request({5}), sink).ok());
    const auto other = rig.Start(Request({6}));
    rig.model->ReleaseSteps();
    EXPECT_EQ(Reason(sink), FinishReason::kError);
    EXPECT_EQ(sink->tokens().size(), 2u);
    EXPECT_THAT(sink->WaitForFinish()->error->message(), HasSubstr("receiver broke"));
    EXPECT_EQ(Reason(other.sink), FinishReason::kStop);
  }
  EXPECT_EQ(rig.model->live_sequences(), 0);
}

TEST(Engine, DrainFinishesWorkAndRefusesNew) {
  Rig rig({.step_delay = 1ms}, {.max_num_seqs = 1});
  rig.model->PlayByDefault({20, 21, 22});
  const auto first = rig.Start(Request({5}));
  const auto second = rig.Start(Request({6}));
  rig.engine->Drain(std::chrono::steady_clock::now() + 60s);
  EXPECT_EQ(first.sink->finishes(), 1);
  EXPECT_EQ(second.sink->finishes(), 1);
  EXPECT_EQ(Reason(second.sink), FinishReason::kStop);
  const Result<SeqId> refused = rig.engine->Submit(Request({5}), std::make_shared<RecordingSink>());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnavailable);
  rig.engine->Drain(std::chrono::steady_clock::now());  // again: idle already
}

TEST(Engine, DrainCancelsWhatIsLeftAtTheDeadline) {
  Rig rig({.step_delay = 1ms}, {.max_num_seqs = 1});
  rig.model->PlayByDefault(std::vector<TokenId>(4000, 20));
  const auto running = rig.Start(Request({5}, 4000));
  const auto waiting = rig.Start(Request({6}, 4000));
  ASSERT_TRUE(running.sink->WaitForTokens(1));
  rig.engine->Drain(std::chrono::steady_clock::now() + 20ms);
  EXPECT_EQ(running.sink->finishes(), 1);
  EXPECT_EQ(Reason(running.sink), FinishReason::kCancelled);
  EXPECT_EQ(Reason(waiting.sink), FinishReason::kCancelled);
  EXPECT_EQ(rig.engine->stats().running, 0);
}

TEST(Engine, TheDestructorTellsEveryone) {
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  {
    Rig rig({.step_delay = 1ms}, {.max_num_seqs = 2});
    rig.model->PlayByDefault(std::vector<TokenId>(4000, 20));
    for (int i = 0; i < 5; ++i) sinks.push_back(rig.Start(Request({5}, 4000)).sink);
  }
  for (const auto& sink : sinks) EXPECT_EQ(Reason(sink), FinishReason::kCancelled);
}

TEST(Engine, AStuckStepShowsItsAge) {
  Rig rig;
  EXPECT_EQ(rig.engine->stats().current_step_age_seconds, 0);
  const auto started = rig.StartHeld(Request({5}));
  std::this_thread::sleep_for(20ms);
  const double age = rig.engine->stats().current_step_age_seconds;
  EXPECT_GE(age, 0.02);
  std::this_thread::sleep_for(5ms);
  EXPECT_GT(rig.engine->stats().current_step_age_seconds, age);
  rig.model->ReleaseSteps();
  EXPECT_EQ(Reason(started.sink), FinishReason::kStop);
  rig.engine->Drain(std::chrono::steady_clock::now() + 60s);
  const auto deadline =
      std::chrono::steady_clock::now() + 20s;  // the last step ends just after the sink is told
  while (rig.engine->stats().current_step_age_seconds > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(rig.engine->stats().current_step_age_seconds, 0);
  EXPECT_GE(rig.engine->stats().last_step_seconds, 0);
}

TEST(Engine, LogprobsReachTheSink) {
  Rig rig({.vocab_size = 4});
  rig.model->ComputeLogits(
      [](std::span<const TokenId>, std::span<float> logits) { std::ranges::fill(logits, 0.0f); });
  GenerationRequest request = Request({3}, 1);
  request.sampling.logprobs = 2;
  const auto started = rig.Start(request);
  EXPECT_EQ(Reason(started.sink), FinishReason::kLength);
  const auto events = started.sink->events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_NEAR(events[0].chosen->logprob, std::log(0.25), 1e-6);
  EXPECT_EQ(events[0].top.size(), 2u);
}

}  // namespace
}  // namespace millrace::engine
