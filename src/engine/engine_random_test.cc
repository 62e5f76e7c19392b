#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "engine/engine.h"
#include "engine/recording_sink.h"
#include "engine/repetition_guard.h"
#include "engine/scripted_model.h"
#include "engine/token_constraint.h"

namespace millrace::engine {
namespace {

constexpr int kVocabSize = 64;
// A prompt that begins with this token makes the model cycle a phrase for ever.
constexpr TokenId kLoopToken = 63;

// Logits that depend on every token of the prefix and its place.
void ToyLogits(std::span<const TokenId> prefix, std::span<float> logits) {
  uint64_t state = 0x243F6A8885A308D3u;
  if (prefix[0] == kLoopToken) {
    state ^= prefix.size() % 23;
  } else {
    for (TokenId token : prefix) state = (state ^ static_cast<uint64_t>(token)) * 0x100000001B3u + 1;
  }
  for (float& logit : logits) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    logit = static_cast<float>(state >> 40) * (8.0f / (1 << 24));
  }
  if (prefix[0] == kLoopToken) logits[ScriptedModelOptions().eos_token_id] = -1;
}

// Every kind of word that a constraint may say, at random, but always the same after the same tokens.
class DiceConstraint final : public TokenConstraint {
 public:
  explicit DiceConstraint(uint64_t seed) : seed_(seed), state_(seed), ids_(kVocabSize) {
    std::iota(ids_.begin(), ids_.end(), 0);
    std::shuffle(ids_.begin(), ids_.end(), std::mt19937(static_cast<unsigned>(seed)));
  }

  std::unique_ptr<TokenConstraint> Clone() const override { return std::make_unique<DiceConstraint>(seed_); }

  void OnToken(TokenId token) override {
    state_ = (state_ ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15u + 1;
    if (!forced_.empty()) {
      EXPECT_EQ(token, forced_.front());
      forced_ = forced_.subspan(1);
    }
  }

  NextToken Next() override {
    if (!forced_.empty()) return ForcedTokens{forced_};
    const uint64_t dice = state_ >> 33;
    const auto some = std::span<const TokenId>(ids_).subspan(dice % 50, 1 + dice / 64 % 12);
    mask_ = state_ | 1;
    switch (dice / 1024 % 16) {
      case 0:
        forced_ = some;
        return ForcedTokens{forced_};
      case 1:
        return AnyTokenBut{some};
      case 2:
        return OneOfTokens{some};
      case 3:
        return OneOfMask{std::span(&mask_, 1)};
      case 4:
        if (dice % 8 == 0) return EndOfSequence{};
        return AnyToken{};
      default:
        return AnyToken{};
    }
  }

 private:
  uint64_t seed_;
  uint64_t state_;
  std::vector<TokenId> ids_;
  std::span<const TokenId> forced_;  // the rest of a run
  uint64_t mask_ = 0;
};

void AddRules(std::mt19937& rng, SamplingParams& s) {
  if (rng() % 4 == 0) s.presence_penalty = 1.5f;
  if (rng() % 4 == 0) s.frequency_penalty = -0.5f;
  if (rng() % 4 == 0) s.repetition_penalty = 1.3f;
  if (rng() % 4 == 0) {
    for (int i = 0; i < 5; ++i) s.logit_bias.push_back({static_cast<TokenId>(rng() % kVocabSize), 3});
  }
  if (rng() % 4 == 0) s.min_tokens = static_cast<int64_t>(rng() % static_cast<uint64_t>(s.max_tokens));
  if (rng() % 3 == 0) s.constraint = std::make_shared<DiceConstraint>(rng());
}

GenerationRequest RandomRequest(std::mt19937& rng) {
  GenerationRequest request;
  request.prompt.resize(1 + rng() % (rng() % 8 == 0 ? 200 : 20));
  for (TokenId& token : request.prompt) token = static_cast<TokenId>(rng() % (kVocabSize - 1));
  SamplingParams& s = request.sampling;
  s.seed = rng();
  if (rng() % 20 == 0) {
    request.prompt[0] = kLoopToken;
    s.max_tokens = 1200;
    s.temperature = 0;
    s.ignore_eos = rng() % 4 == 0;
    return request;
  }
  s.max_tokens = 1 + rng() % 30;
  s.temperature = rng() % 3 == 0 ? 0.0f : 1.0f;
  if (rng() % 2) s.top_p = 0.9f;
  if (rng() % 2) s.top_k = 10;
  if (rng() % 4 == 0) s.logprobs = 3;
  if (rng() % 2) AddRules(rng, s);
  return request;
}

ScriptedModelOptions ToyModel(int64_t max_batch_tokens, int64_t pool_tokens = INT64_MAX) {
  return {.vocab_size = kVocabSize,
          .max_model_len = 2048,
          .max_batch_tokens = max_batch_tokens,
          .pool_tokens = pool_tokens,
          .step_delay = {}};
}

struct Outcome {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  FinishReason reason{};
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome OutcomeOf(RecordingSink& sink) {
  Outcome outcome;
  const auto finish = sink.WaitForFinish();
  EXPECT_TRUE(finish.has_value());
  if (finish) outcome.reason = finish->reason;
  for (const TokenEvent& event : sink.events()) {
    outcome.tokens.push_back(event.token);
    if (event.chosen) outcome.logprobs.push_back(event.chosen->logprob);
    for (const TokenLogprob& t : event.top) outcome.logprobs.push_back(t.logprob);
  }
  return outcome;
}

struct Shape {
  int max_num_seqs;
  int64_t batch_tokens;
  int64_t chunk;
  int64_t pool_tokens;
  bool reuse_prefixes = false;
  SchedulePolicy policy = SchedulePolicy::kFair;
};

// Submits `requests` in the given order to one engine; outcomes by request.
std::vector<Outcome> RunTogether(const std::vector<GenerationRequest>& requests,
                                 const std::vector<size_t>& order, const Shape& shape) {
  ScriptedModelOptions toy = ToyModel(shape.batch_tokens, shape.pool_tokens);
  toy.reuse_prefixes = shape.reuse_prefixes;
  auto model = std::make_unique<ScriptedModel>(toy);
  model->ComputeLogits(ToyLogits);
  Engine engine(std::move(model), {.max_num_seqs = shape.max_num_seqs,
                                   .max_queue = 200,
                                   .prefill_chunk = shape.chunk,
                                   .schedule_policy = shape.policy,
                                   .repetition_limit_tokens = kMinRepetitionLimitTokens});
  std::map<size_t, std::shared_ptr<RecordingSink>> sinks;
  for (size_t i : order) {
    sinks[i] = std::make_shared<RecordingSink>();
    EXPECT_TRUE(engine.Submit(requests[i], sinks[i]).ok());
    if (i % 4 == 0) std::this_thread::yield();
  }
  std::vector<Outcome> outcomes;
  for (auto& [i, sink] : sinks) outcomes.push_back(OutcomeOf(*sink));
  return outcomes;
}

// The promise of one answer, for everything above the model: whatever runs beside a request and however its
// prompt is cut, its tokens are those of its solo run.
TEST(EngineRandom, EveryRequestAnswersAsIfAlone) {
  std::mt19937 rng(11);
  std::vector<GenerationRequest> requests;
  std::vector<Outcome> alone;
  for (int i = 0; i < 150; ++i) {
    requests.push_back(RandomRequest(rng));
    alone.push_back(RunTogether({requests.back()}, {0}, {1, 512, 512, INT64_MAX})[0]);
  }
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kRepetition}) {
    EXPECT_GE(std::ranges::count(alone, reason, &Outcome::reason), 3) << FinishReasonName(reason);
  }
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (const Shape& shape : {Shape{1, 1, 1, INT64_MAX}, Shape{4, 1, 1, INT64_MAX}, Shape{3, 7, 5, INT64_MAX},
                             Shape{16, 16, 16, INT64_MAX}, Shape{64, 512, 512, INT64_MAX},
                             Shape{8, 32, 10, 1500}, Shape{32, 64, 64, 1500}, Shape{32, 64, 64, 1410, true},
                             Shape{16, 16, 16, 1500, true, SchedulePolicy::kFcfs},
                             Shape{16, 16, 16, INT64_MAX, false, SchedulePolicy::kShortest}}) {
    std::shuffle(order.begin(), order.end(), rng);
    const std::vector<Outcome> together = RunTogether(requests, order, shape);
    ASSERT_EQ(together.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(together[i], alone[i]) << "request " << i << ", " << shape.max_num_seqs << " slots, "
                                       << shape.batch_tokens << " tokens a step";
    }
  }
}

// With logprobs every forced token has a step of its own, without them a run goes in one piece: the same
// answer.
TEST(EngineRandom, ForcedRunsAnswerAsTokenByToken) {
  std::mt19937 rng(12);
  for (int i = 0; i < 100; ++i) {
    GenerationRequest request = RandomRequest(rng);
    request.sampling.constraint = std::make_shared<DiceConstraint>(rng());
    request.sampling.logprobs = std::nullopt;
    const Outcome in_runs = RunTogether({request}, {0}, {1, 5, 5, INT64_MAX})[0];
    request.sampling.logprobs = 0;
    const Outcome one_by_one = RunTogether({request}, {0}, {1, 5, 5, INT64_MAX})[0];
    EXPECT_EQ(in_runs.tokens, one_by_one.tokens);
    EXPECT_EQ(in_runs.reason, one_by_one.reason);
    EXPECT_EQ(one_by_one.logprobs.size(), one_by_one.tokens.size());
  }
}

// A thousand requests from four threads with cancels at any moment: each is told its end once, uncancelled
// ones in full, and nothing is left behind.
TEST(EngineRandom, AThousandRequestsWithCancelsLeaveNothingBehind) {
  constexpr int kThreads = 4;
  constexpr int kPerThread = 250;
  auto owned = std::make_unique<ScriptedModel>(ToyModel(24, 2000));
  ScriptedModel& model = *owned;
  model.ComputeLogits(ToyLogits);
  Engine engine(std::move(owned), {.max_num_seqs = 6,
                                   .max_queue = 2000,
                                   .prefill_chunk = 16,
                                   .repetition_limit_tokens = kMinRepetitionLimitTokens});

  struct Sent {
    std::shared_ptr<RecordingSink> sink;
    int64_t prompt_tokens;
    bool cancelled;
  };
  std::vector<std::vector<Sent>> sent(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 rng(static_cast<unsigned>(t));
      std::vector<std::pair<SeqId, size_t>> open;
      for (int i = 0; i < kPerThread; ++i) {
        GenerationRequest request = RandomRequest(rng);
        auto sink = std::make_shared<RecordingSink>();
        const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
        const Result<SeqId> id = engine.Submit(std::move(request), sink);
        ASSERT_TRUE(id.ok()) << id.error().message();
        open.push_back({*id, sent[t].size()});
        sent[t].push_back({sink, prompt_tokens, false});
        if (rng() % 3 == 0) {
          const size_t which = rng() % open.size();
          engine.Cancel(open[which].first);
          sent[t][open[which].second].cancelled = true;
        }
        if (rng() % 5 == 0) (void)engine.stats();
        if (rng() % 10 == 0) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  uint64_t tokens = 0;
  std::map<FinishReason, uint64_t> counts;
  for (const auto& list : sent) {
    for (const Sent& one : list) {
      const auto finish = one.sink->WaitForFinish();
      ASSERT_TRUE(finish.has_value());
      EXPECT_EQ(one.sink->finishes(), 1);
      EXPECT_EQ(finish->prompt_tokens, one.prompt_tokens);
      EXPECT_EQ(finish->generated_tokens, static_cast<int64_t>(one.sink->tokens().size()));
      if (!one.cancelled) {
        EXPECT_NE(finish->reason, FinishReason::kCancelled);
      }
      ++counts[finish->reason];
      tokens += one.sink->tokens().size();
    }
  }
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.finished_stop, counts[FinishReason::kStop]);
  EXPECT_EQ(stats.finished_length, counts[FinishReason::kLength]);
  EXPECT_EQ(stats.finished_repetition, counts[FinishReason::kRepetition]);
  EXPECT_EQ(stats.finished_cancelled, counts[FinishReason::kCancelled]);
  EXPECT_EQ(stats.finished_error, 0u);
  EXPECT_GT(counts[FinishReason::kCancelled], 20u);
  EXPECT_EQ(stats.generation_tokens_total, tokens);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(model.live_sequences(), 0);
  EXPECT_EQ(model.reserved_tokens(), 0);
}

}  // namespace
}  // namespace millrace::engine
