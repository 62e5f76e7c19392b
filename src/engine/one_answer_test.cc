#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "engine/load.h"
#include "engine/loop.h"
#include "engine/recording_sink.h"
#include "model/checkpoint_testing.h"

// The promise of one answer over the real model with its cache: random schedules (arrivals, cancels, chunks,
// batch sizes, evictions, a pool as small as allowed, preemptions, prompts that begin alike and come
// together), and every request answers, bit for bit, as alone on a cold engine. MILLRACE_SCHEDULES sets how
// many; MILLRACE_SCHEDULE_SEED where they begin.

namespace millrace::engine {
namespace {

constexpr int64_t kPage = model::kMinPageTokens;
constexpr int64_t kMaxModelLen = 8 * kPage;
constexpr int64_t kSchedules = 2000;

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

// A model that several loops use one after the other; forgets its cache now and then.
class Lent : public StepModel {
 public:
  Lent(ModelStepper& model, std::mt19937& rng, unsigned forget_every)
      : model_(model), rng_(rng), forget_every_(forget_every) {}

  int64_t vocab_size() const override { return model_.vocab_size(); }
  TokenId eos_token_id() const override { return model_.eos_token_id(); }
  int64_t max_model_len() const override { return model_.max_model_len(); }
  int64_t max_batch_tokens() const override { return model_.max_batch_tokens(); }
  Result<StartedSequence> NewSequence(std::span<const TokenId> tokens) override {
    return model_.NewSequence(tokens);
  }
  Status Reserve(StepSequence& sequence, int64_t length) override { return model_.Reserve(sequence, length); }
  std::optional<SharedReading> WorthWaiting(const StepSequence& reader, std::span<const TokenId> tokens,
                                            int64_t common) const noexcept override {
    return model_.WorthWaiting(reader, tokens, common);
  }
  void LeaveFor(StepSequence& reader, int64_t n_tokens, int64_t length) noexcept override {
    model_.LeaveFor(reader, n_tokens, length);
  }
  void ForgetAsked(StepSequence& reader) noexcept override { model_.ForgetAsked(reader); }
  void Step(std::span<const StepItem> items, std::span<float> logits) override {
    if (forget_every_ > 0 && rng_() % forget_every_ == 0) model_.ClearCache();
    model_.Step(items, logits);
  }
  CacheStats cache_stats() const noexcept override { return model_.cache_stats(); }

 private:
  ModelStepper& model_;
  std::mt19937& rng_;
  unsigned forget_every_;
};

struct Answer {
  std::vector<TokenId> tokens = {};
  std::vector<float> logprobs = {};  // of the chosen: a sum over all logits
  FinishReason reason{};
  friend bool operator==(const Answer&, const Answer&) = default;
};

Answer AnswerOf(RecordingSink& sink) {
  Answer answer{.reason = sink.WaitForFinish(std::chrono::seconds(0))->reason};
  for (const TokenEvent& event : sink.events()) {
    answer.tokens.push_back(event.token);
    if (event.chosen) answer.logprobs.push_back(event.chosen->logprob);
  }
  return answer;
}

// Whether `part` is how `whole` begins.
bool Begins(const Answer& part, const Answer& whole) {
  return part.tokens.size() <= whole.tokens.size() &&
         std::equal(part.tokens.begin(), part.tokens.end(), whole.tokens.begin()) &&
         std::equal(part.logprobs.begin(), part.logprobs.end(), whole.logprobs.begin());
}

class OneAnswer : public testing::Test {
 protected:
  static LoadedModel Load(const StepperOptions& options) {
    auto loaded = LoadStepModel(model::TinyCheckpoint(), {.stepper = options, .threads = 1});
    if (!loaded.ok()) {
      ADD_FAILURE() << loaded.error().message();
      std::abort();
    }
    return std::move(loaded).value();
  }

  void SetUp() override {
    std::mt19937 rng(2);
    MakeRequests(rng);
    StepperOptions plain{.max_model_len = kMaxModelLen,
                         .max_num_seqs = 1,
                         .max_batch_tokens = kMaxModelLen,
                         .late_layers = model::LateLayers::kAll,
                         .prefix_caching = false,
                         .page_tokens = kPage};
    LoadedModel cold = Load(plain);
    for (const GenerationRequest& request : requests_) alone_.push_back(Alone(*cold.model, request));
  }

  // Prompts that share beginnings of many lengths, are edited near their ends, extend each other, and lie
  // around page boundaries; sampling of every kind.
  void MakeRequests(std::mt19937& rng) {
    const auto random_tokens = [&](int64_t n) {
      std::vector<TokenId> tokens(static_cast<size_t>(n));
      for (TokenId& token : tokens) token = static_cast<TokenId>(3 + rng() % 1000);
      return tokens;
    };
    const std::vector<TokenId> base = random_tokens(kMaxModelLen);
    const auto add = [&](int64_t shared, int64_t own) {
      GenerationRequest request;
      request.prompt.assign(base.begin(), base.begin() + shared);
      const std::vector<TokenId> rest = random_tokens(own);
      request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
      SamplingParams& s = request.sampling;
      s.seed = rng();
      s.temperature = rng() % 3 == 0 ? 0.0f : 1.0f;
      s.logprobs = 0;
      s.max_tokens = 1 + static_cast<int64_t>(rng() % 12);
      if (rng() % 4 == 0) s.presence_penalty = 0.5f;
      if (rng() % 4 == 0) s.top_k = 20;
      s.ignore_eos = rng() % 2 == 0;
      requests_.push_back(std::move(request));
    };
    for (const int64_t k : {1, 2, 4}) {
      for (const int64_t off : {-1, 0, 1}) add(k * kPage + off, 0);
    }
    for (const int64_t shared : {1, 5, 31, 32, 33, 63, 64, 65, 96, 127}) add(shared, 1 + rng() % 40);
    for (const int64_t edit : {1, 10, 30, 40}) add(110 - edit, edit);
    for (int i = 0; i < 8; ++i) add(static_cast<int64_t>(rng() % 120), 1 + static_cast<int64_t>(rng() % 20));
    add(kMaxModelLen - 1, 0);
    // Some pages in common, before much and before little of their own.
    first_alike_ = requests_.size();
    for (const int64_t shared : {64, 96, 130}) {
      for (const int64_t own : {3, 20, 60, 110}) add(shared, own);
    }
    // Short prompts that grow: what a small pool preempts.
    first_growing_ = requests_.size();
    for (int i = 0; i < 10; ++i) {
      add(static_cast<int64_t>(rng() % 30), 1 + static_cast<int64_t>(rng() % 5));
      requests_.back().sampling.max_tokens = 60 + static_cast<int64_t>(rng() % 60);
      requests_.back().sampling.ignore_eos = true;
    }
  }

  static Answer Alone(ModelStepper& model, const GenerationRequest& request) {
    StatsBoard board;
    std::mt19937 unused;
    Loop loop(std::make_unique<Lent>(model, unused, 0), {.max_num_seqs = 1, .prefill_chunk = kMaxModelLen},
              board);
    auto sink = std::make_shared<RecordingSink>();
    EXPECT_TRUE(board.TryJoinQueue(1, std::ssize(request.prompt)));
    loop.Enqueue({SeqId{1}, request, sink, std::chrono::steady_clock::now()});
    while (!loop.idle()) loop.Step();
    return AnswerOf(*sink);
  }

  struct Totals {
    uint64_t preemptions = 0, hits = 0, replays = 0, waits = 0, cancels = 0, evictions = 0;
    uint64_t steps = 0, tokens = 0;
  };

  // One schedule of `model`, drawn from `rng`; what went otherwise than alone fails the test.
  void RunSchedule(ModelStepper& model, int max_num_seqs, std::mt19937& rng, Totals& totals) {
    StatsBoard board;
    // All at once: those that grow, which a small pool preempts, or those that begin alike, which wait for
    // one of them.
    const unsigned kind = rng() % 8;
    const bool growing = kind == 0;
    const bool alike = kind <= 2 && !growing;
    const auto seqs =
        kind <= 2 ? max_num_seqs : 1 + static_cast<int>(rng() % static_cast<unsigned>(max_num_seqs));
    const int64_t chunk = std::vector<int64_t>{3, 16, 31, 64, 256}[rng() % 5];
    Loop loop(std::make_unique<Lent>(model, rng, rng() % 3 == 0 ? 1 + rng() % 30 : 0),
              {.max_num_seqs = seqs,
               .max_queue = 100,
               .prefill_chunk = chunk,
               .schedule_policy = kSchedulePolicies[rng() % kSchedulePolicies.size()],
               .pace = rng() % 2 == 0 ? PaceOptions{} : PaceOptions{0, 0}},
              board);
    struct Sent {
      size_t request;
      std::shared_ptr<RecordingSink> sink;
      bool cancelled = false;
    };
    std::vector<Sent> sent;
    const size_t n = growing ? 4 : 2 + rng() % 2 + alike;
    while (sent.size() < n || !loop.idle()) {
      while (sent.size() < n && (kind <= 2 || loop.idle() || rng() % 3 == 0)) {
        const size_t from = growing ? first_growing_ : alike ? first_alike_ : 0;
        const size_t to = alike ? first_growing_ : requests_.size();
        Sent one{from + rng() % (to - from), std::make_shared<RecordingSink>()};
        ASSERT_TRUE(board.TryJoinQueue(200, std::ssize(requests_[one.request].prompt)));
        loop.Enqueue(
            {SeqId{sent.size()}, requests_[one.request], one.sink, std::chrono::steady_clock::now()});
        sent.push_back(std::move(one));
      }
      if (rng() % 150 == 0) {
        const size_t victim = rng() % sent.size();
        sent[victim].cancelled = true;
        loop.Cancel(SeqId{victim});
      }
      loop.Step();
    }
    for (const Sent& one : sent) {
      ASSERT_EQ(one.sink->finishes(), 1);
      const Answer answer = AnswerOf(*one.sink);
      if (one.cancelled && answer.reason == FinishReason::kCancelled) {
        ++totals.cancels;
        EXPECT_TRUE(Begins(answer, alone_[one.request])) << "request " << one.request;
      } else {
        EXPECT_EQ(answer, alone_[one.request]) << "request " << one.request;
      }
    }
    const Status sound = model.CheckCache();
    EXPECT_TRUE(sound.ok()) << sound.error().message();
    const EngineStats stats = board.Snapshot();
    EXPECT_EQ(stats.cache.in_use_tokens, 0);
    EXPECT_EQ(model.free_kv_tokens(), model.kv_tokens()) << "all pages come back";
    totals.preemptions += stats.preemptions_total;
    totals.steps += stats.steps_total;
    totals.tokens += stats.prompt_tokens_total + stats.generation_tokens_total;
    totals.hits += stats.prefix_hit_tokens;
    totals.replays += stats.prefix_replay_tokens;
    totals.waits += stats.prompt_waits_total;
  }

  std::vector<GenerationRequest> requests_;
  size_t first_alike_ = 0, first_growing_ = 0;
  std::vector<Answer> alone_;
};

TEST_F(OneAnswer, RandomSchedules) {
  const int64_t schedules = FromEnvironment("MILLRACE_SCHEDULES", kSchedules);
  const auto first = static_cast<unsigned>(FromEnvironment("MILLRACE_SCHEDULE_SEED", 1));
  struct Kind {
    int max_num_seqs;
    int64_t batch_tokens, pages;
    int tails;
  };
  std::vector<LoadedModel> models;
  const std::vector<Kind> kinds = {{1, 64, 8, 2},    {4, 16, 8, 1},   {4, 200, 8, 4},   {6, 64, 9, 0},
                                   {6, 100, 20, 16}, {8, 256, 40, 3}, {3, 33, 100, 64}, {8, 8, 8, 8}};
  for (const Kind& kind : kinds) {
    models.push_back(
        Load({.max_model_len = kMaxModelLen,
              .max_num_seqs = kind.max_num_seqs,
              .max_batch_tokens = kind.batch_tokens,
              .kv_tokens = kind.pages * kPage,
              .late_layers = models.size() % 4 == 3 ? model::LateLayers::kAll : model::LateLayers::kNeeded,
              .prefix_tails = kind.tails,
              .page_tokens = kPage,
              .early_tail_pages = 1}));
  }
  Totals totals;
  for (int64_t i = 0; i < schedules; ++i) {
    const unsigned seed = first + static_cast<unsigned>(i);
    SCOPED_TRACE(testing::Message() << "schedule " << seed);
    std::mt19937 rng(seed);
    const size_t kind = rng() % kinds.size();
    ASSERT_NO_FATAL_FAILURE(RunSchedule(*models[kind].model, kinds[kind].max_num_seqs, rng, totals));
    if (HasFailure()) break;  // the first is the one to look at
  }
  for (const LoadedModel& loaded : models)
    totals.evictions += loaded.model->cache_stats().evicted_tokens / static_cast<uint64_t>(kPage);
  RecordProperty("preemptions", static_cast<int>(totals.preemptions));
  std::printf(
      "%lld schedules: %llu preemptions, %llu tokens from the cache, %llu replayed, %llu waits for another's "
      "prompt, %llu cancelled, %llu pages evicted; %llu steps, %llu tokens computed\n",
      static_cast<long long>(schedules), static_cast<unsigned long long>(totals.preemptions),
      static_cast<unsigned long long>(totals.hits), static_cast<unsigned long long>(totals.replays),
      static_cast<unsigned long long>(totals.waits), static_cast<unsigned long long>(totals.cancels),
      static_cast<unsigned long long>(totals.evictions), static_cast<unsigned long long>(totals.steps),
      static_cast<unsigned long long>(totals.tokens));
  // The schedules were ones that put the cache to the test.
  const auto n = static_cast<uint64_t>(schedules);
  EXPECT_GT(totals.preemptions, n / 30);
  EXPECT_GT(totals.hits, n * 10);
  EXPECT_GT(totals.replays, n * 5);
  EXPECT_GT(totals.waits, n / 10);
  EXPECT_GT(totals.cancels, n / 50);
  EXPECT_GT(totals.evictions, n);
}

}  // namespace
}  // namespace millrace::engine
