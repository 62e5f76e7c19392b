#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/load.h"
#include "engine/loop.h"
#include "engine/model_stepper.h"
#include "engine/recording_sink.h"
#include "model/checkpoint_testing.h"

// What the prefix cache gives back, and that it gives it back exactly: pages of the real size over the tiny
// model.

namespace millrace::engine {
namespace {

constexpr int64_t kPage = model::kPageTokens;

class PrefixReuseTest : public testing::Test {
 protected:
  void Load(StepperOptions options = {}) {
    options.max_model_len = options.kv_tokens.value_or(6000) < 6000 ? *options.kv_tokens : 6000;
    options.max_batch_tokens = 300;
    options.page_tokens = page_tokens_;
    auto loaded = LoadStepModel(checkpoint_, {.stepper = options, .threads = 2});
    if (!loaded.ok()) {
      ADD_FAILURE() << loaded.error().message();
      std::abort();
    }
    loaded_ = std::move(loaded).value();
  }
  ModelStepper& model() { return *loaded_.model; }
  // Layers times what a window reaches back.
  int64_t replay_bound() const {
    const formats::ModelConfig& config = loaded_.checkpoint->config();
    return config.num_hidden_layers * (config.sliding_window - 1) + 1;
  }

  std::vector<TokenId> Random(int64_t n) {
    std::vector<TokenId> tokens(static_cast<size_t>(n));
    for (TokenId& token : tokens) token = static_cast<TokenId>(3 + rng_() % 1000);
    return tokens;
  }
  static std::vector<TokenId> Join(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  static std::vector<TokenId> First(const std::vector<TokenId>& tokens, int64_t n) {
    return {tokens.begin(), tokens.begin() + n};
  }

  // A prompt's answer: the logits after it and after `generated` greedy tokens more.
  struct Run {
    std::vector<float> logits = {};
    std::vector<TokenId> tokens;  // prompt and answer
    int64_t computed = 0;         // tokens of the prompt
    int64_t replayed = 0;
    friend bool operator==(const Run& a, const Run& b) {
      return a.tokens == b.tokens && a.logits.size() == b.logits.size() &&
             std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0;
    }
  };
  Run Ask(const std::vector<TokenId>& prompt, int generated = 2) {
    Run run{.tokens = prompt};
    auto started = model().NewSequence(prompt);
    EXPECT_TRUE(started.ok());
    if (!started.ok()) return run;
    run.computed = std::ssize(prompt) - started->length;
    run.replayed = started->replayed_tokens;
    std::vector<float> logits(static_cast<size_t>(model().vocab_size()));
    for (int64_t at = started->length; at < std::ssize(prompt); at += 300) {
      const auto n = std::min<int64_t>(300, std::ssize(prompt) - at);
      Step(*started->sequence, std::span(prompt).subspan(static_cast<size_t>(at), static_cast<size_t>(n)),
           at + n == std::ssize(prompt), logits);
    }
    for (int i = 0; i < generated; ++i) {
      run.tokens.push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
      EXPECT_TRUE(model().Reserve(*started->sequence, std::ssize(run.tokens)).ok());
      Step(*started->sequence, std::span(run.tokens).last(1), true, logits);
    }
    run.logits = logits;
    return run;
  }
  void Step(StepSequence& sequence, std::span<const TokenId> tokens, bool wants_logits,
            std::vector<float>& logits) {
    const StepItem item{.sequence = &sequence, .tokens = tokens, .wants_logits = wants_logits};
    model().Step({&item, 1}, wants_logits ? std::span<float>(logits) : std::span<float>());
  }
  // The answer of an engine that has seen nothing.
  Run Cold(const std::vector<TokenId>& prompt, int generated = 2) {
    if (cold_.model == nullptr) {
      StepperOptions plain;
      plain.prefix_caching = false;
      std::swap(loaded_, cold_);
      Load(plain);
      std::swap(loaded_, cold_);
    }
    std::swap(loaded_, cold_);
    Run run = Ask(prompt, generated);
    std::swap(loaded_, cold_);
    EXPECT_EQ(run.computed, std::ssize(prompt));
    return run;
  }

  // Greedy answers of four tokens to prompts that come together.
  struct Together {
    std::vector<Run> runs;  // without logits
    EngineStats stats;
  };
  Together AskTogether(const std::vector<std::vector<TokenId>>& prompts) {
    Together together;
    StatsBoard board;
    Loop loop(std::move(loaded_.model), {.max_num_seqs = 8, .prefill_chunk = 300}, board);
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (const std::vector<TokenId>& prompt : prompts) {
      GenerationRequest request{.request_id = "together", .prompt = prompt, .sampling = {}};
      request.sampling.temperature = 0;
      request.sampling.max_tokens = 4;
      request.sampling.ignore_eos = true;
      EXPECT_TRUE(board.TryJoinQueue(100, std::ssize(prompt)));
      sinks.push_back(std::make_shared<RecordingSink>());
      loop.Enqueue({SeqId{sinks.size()}, std::move(request), sinks.back(), std::chrono::steady_clock::now()});
    }
    while (!loop.idle()) loop.Step();
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto finish = sinks[i]->WaitForFinish(std::chrono::seconds(0));
      together.runs.push_back({.tokens = Join(prompts[i], sinks[i]->tokens()),
                               .computed = finish->prompt_tokens - finish->cached_tokens});
    }
    together.stats = board.Snapshot();
    return together;
  }

  std::filesystem::path checkpoint_ = model::TinyCheckpoint();
  int64_t page_tokens_ = kPage;
  std::mt19937 rng_{4};
  LoadedModel loaded_;
  LoadedModel cold_;
};

TEST_F(PrefixReuseTest, PromptsAroundPageBoundariesRepeatAndExtendExactly) {
  Load();
  const std::vector<TokenId> base = Random(16 * kPage + 40);
  for (const int64_t k : {1, 2, 16}) {
    for (const int64_t off : {-1, 0, 1}) {
      model().ClearCache();
      const std::vector<TokenId> prompt = First(base, k * kPage + off);
      const Run cold = Cold(prompt);
      EXPECT_EQ(Ask(prompt), cold) << k << " pages and " << off;
      const Run repeated = Ask(prompt);
      EXPECT_EQ(repeated, cold);
      EXPECT_LE(repeated.computed, kPage) << "at most one page again";
      EXPECT_EQ(repeated.replayed, 0);
      if (k > 2 && off != 0) continue;  // reading so much again cold takes its time
      const std::vector<TokenId> more = Join(cold.tokens, Random(30));
      const Run extended = Ask(more);
      EXPECT_EQ(extended, Cold(more));
      EXPECT_LE(extended.computed, kPage + 32);
      EXPECT_EQ(extended.replayed, 0);
    }
  }
}

TEST_F(PrefixReuseTest, SharedBeginningsOfAnyLengthGiveTheSameAnswers) {
  Load();
  const std::vector<TokenId> base = Random(700);
  (void)Ask(base);
  for (const int64_t shared : {1, 40, 127, 128, 129, 255, 256, 257, 511, 512, 513}) {
    const std::vector<TokenId> prompt = Join(First(base, shared), Random(200));
    const Run run = Ask(prompt);
    EXPECT_EQ(run, Cold(prompt)) << shared;
    EXPECT_LE(run.computed - run.replayed, 200 + kPage);
    EXPECT_LE(run.replayed, replay_bound());
  }
}

TEST_F(PrefixReuseTest, AnEditNearTheEndCostsTheEditAWindowAndAPage) {
  Load();
  const int64_t window = loaded_.checkpoint->config().sliding_window;
  for (const int64_t edit : {10, 100, 300}) {
    const std::vector<TokenId> prompt = Random(1500 + edit);
    (void)Ask(prompt, 20);
    const std::vector<TokenId> edited = Join(First(prompt, std::ssize(prompt) - edit), Random(edit));
    const Run run = Ask(edited);
    EXPECT_EQ(run, Cold(edited)) << edit;
    EXPECT_LE(run.computed, edit + window + kPage) << edit;
  }
  // Far from the end no tail is left, and the bounded replay takes its place.
  const std::vector<TokenId> prompt = Random(2600);
  (void)Ask(prompt);
  const std::vector<TokenId> edited = Join(First(prompt, 1400), Random(1200));
  const Run run = Ask(edited);
  EXPECT_EQ(run, Cold(edited));
  EXPECT_LE(run.computed, 1200 + kPage + replay_bound());
  EXPECT_GT(run.replayed, 0);
}

// The next turn of a chat drops the reasoning of the one before, or goes on behind all of it.
TEST_F(PrefixReuseTest, ATurnGoesOnBehindThePromptOrTheAnswerOfTheLast) {
  Load();
  const std::vector<TokenId> prompt = Random(900);
  const Run turn = Ask(prompt, 700);
  const std::vector<TokenId> all = Join(turn.tokens, Random(50));
  const Run behind_all = Ask(all);
  EXPECT_LE(behind_all.computed, kPage + 50);
  EXPECT_EQ(behind_all, Cold(all));
  const std::vector<TokenId> dropped = Join(prompt, Random(60));
  const Run behind_prompt = Ask(dropped);
  EXPECT_LE(behind_prompt.computed, kPage + 60);
  EXPECT_EQ(behind_prompt, Cold(dropped));
}

TEST_F(PrefixReuseTest, SixteenInterleavedConversationsKeepTheirPasts) {
  StepperOptions options;
  options.max_num_seqs = 16;
  options.kv_tokens = 16 * 6000;
  Load(options);
  std::vector<std::vector<TokenId>> conversations(16);
  for (auto& conversation : conversations) conversation = Random(500 + static_cast<int64_t>(rng_() % 200));
  int64_t before = 0, kept = 0;
  for (int turn = 0; turn < 4; ++turn) {
    for (auto& conversation : conversations) {
      const int64_t past = turn == 0 ? 0 : std::ssize(conversation);
      if (turn > 0) conversation = Join(conversation, Random(300));
      const Run run = Ask(conversation, 10);
      // Of what it had said and read before, all but the part of a page.
      before += past / kPage * kPage;
      kept += std::min(past / kPage * kPage, std::ssize(conversation) - run.computed);
      conversation = run.tokens;
    }
  }
  EXPECT_GE(static_cast<double>(kept), 0.95 * static_cast<double>(before)) << kept << " of " << before;
}

// The same beginning before ends that are new each time.
TEST_F(PrefixReuseTest, ABeginningIsKeptHoweverLongTheNewEndsAre) {
  page_tokens_ = model::kMinPageTokens;
  Load();
  const std::vector<TokenId> base = Random(12 * page_tokens_ + 1);
  (void)Ask(base, 0);
  for (int turn = 0; turn < 12; ++turn) {
    for (const int64_t fresh : {0, 1, 3, 6}) {
      const Run run = Ask(Join(base, Random(fresh * page_tokens_)), 0);
      EXPECT_LE(run.computed, fresh * page_tokens_ + page_tokens_) << fresh << " pages, turn " << turn;
    }
  }
}

// An agent's client puts a reminder behind the last message, and takes it away in the next turn.
TEST_F(PrefixReuseTest, ARemovedReminderCostsWhatCameBehindIt) {
  Load();
  std::vector<TokenId> history = Random(1100);
  for (int turn = 0; turn < 4; ++turn) {
    const int64_t kept = turn == 0 ? 0 : std::ssize(history);
    if (turn > 0) history = Join(history, Random(300));
    const std::vector<TokenId> prompt = Join(history, Random(60));
    const Run run = Ask(prompt, 10);
    EXPECT_LE(run.computed, std::ssize(prompt) - kept + kPage) << "turn " << turn;
    if (turn == 3) {
      EXPECT_EQ(run, Cold(prompt, 10));
    }
  }
}

// Ten turns of thought, call and result; the client gives back calls and results alone.
TEST_F(PrefixReuseTest, AToolLoopWithoutItsReasoningReadsOnlyWhatIsNew) {
  page_tokens_ = model::kMinPageTokens;
  Load();
  std::vector<TokenId> prompt = Random(200);
  for (int turn = 0; turn < 10; ++turn) {
    const Run run = Ask(prompt, 60);
    const int64_t added = turn == 0 ? 200 : 20 + 50;
    EXPECT_LE(run.computed, added + page_tokens_) << "turn " << turn;
    if (turn == 9) {
      EXPECT_EQ(run, Cold(prompt, 60));
    }
    const std::vector<TokenId> call(run.tokens.end() - 20, run.tokens.end());
    prompt = Join(Join(prompt, call), Random(50));
  }
}

// With room for one conversation, what its prompt left and what its answer left both last.
TEST_F(PrefixReuseTest, TheEndOfATurnDoesNotDriveOutTheEndOfItsPrompt) {
  page_tokens_ = model::kMinPageTokens;
  StepperOptions options;
  options.prefix_tails = ModelStepper::kPromptTails + 2;
  options.max_num_seqs = 1;
  options.kv_tokens = 10 * page_tokens_;
  Load(options);
  const std::vector<TokenId> prompt = Random(130);
  const Run turn = Ask(prompt, 120);
  const std::vector<TokenId> all = Join(turn.tokens, Random(20));
  const Run behind_all = Ask(all);
  EXPECT_LE(behind_all.computed, 20 + page_tokens_);
  EXPECT_EQ(behind_all, Cold(all));
  const std::vector<TokenId> dropped = Join(prompt, Random(20));
  const Run behind_prompt = Ask(dropped);
  EXPECT_LE(behind_prompt.computed, 20 + page_tokens_);
  EXPECT_EQ(behind_prompt, Cold(dropped));
}

TEST_F(PrefixReuseTest, LostTailsAndPagesCostTimeAndNotABit) {
  for (const int tails : {0, 1, 2}) {
    StepperOptions options;
    options.prefix_tails = tails;
    options.kv_tokens = 11 * kPage;
    Load(options);
    const std::vector<TokenId> a = Random(900), b = Random(1300), c = Random(1100);
    const Run cold_a = Cold(a), cold_b = Cold(b), cold_c = Cold(c);
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(Ask(a), cold_a);
      EXPECT_EQ(Ask(b), cold_b);
      const Run again = Ask(b);
      EXPECT_EQ(again, cold_b);
      EXPECT_LE(again.computed, kPage + replay_bound());
      EXPECT_EQ(Ask(c), cold_c);
    }
    EXPECT_GT(model().cache_stats().evicted_tokens, 0u);
    const Status sound = model().CheckCache();
    EXPECT_TRUE(sound.ok()) << sound.error().message();
  }
}

TEST_F(PrefixReuseTest, SwitchedOffNothingIsShared) {
  StepperOptions options;
  options.prefix_caching = false;
  Load(options);
  const std::vector<TokenId> prompt = Random(600);
  EXPECT_EQ(Ask(prompt).computed, 600);
  EXPECT_EQ(Ask(prompt).computed, 600);
  EXPECT_EQ(model().cache_stats().reusable_tokens, 0);
  EXPECT_EQ(model().free_kv_tokens(), model().kv_tokens());
}

TEST_F(PrefixReuseTest, EightPromptsThatComeTogetherReadWhatTheyShareOnce) {
  StepperOptions options;
  options.max_num_seqs = 8;
  Load(options);
  const std::vector<TokenId> base = Random(4096);
  std::vector<std::vector<TokenId>> prompts(8);
  for (auto& prompt : prompts) prompt = Join(base, Random(100));
  const Together together = AskTogether(prompts);
  EXPECT_EQ(together.runs[0].computed, 4196);
  for (size_t i = 1; i < 8; ++i) EXPECT_EQ(together.runs[i].computed, 100) << i;
  EXPECT_EQ(together.stats.prompt_tokens_total, 4096u + 8 * 100);
  EXPECT_EQ(together.stats.prefix_replay_tokens, 0u);
  for (const size_t i : {0, 5}) EXPECT_EQ(together.runs[i].tokens, Cold(prompts[i], 4).tokens) << i;
}

// Where the others part from the one that reads is no place that it would keep for itself: it leaves a tail
// for them, full or early as they need it.
TEST_F(PrefixReuseTest, WhoReadsLeavesATailWhereOthersPart) {
  StepperOptions options;
  options.max_num_seqs = 8;
  Load(options);
  const std::vector<TokenId> base = Random(1200);
  std::vector<std::vector<TokenId>> prompts = {Join(base, Random(600))};
  for (const auto& [shared, own] :
       std::vector<std::pair<int64_t, int64_t>>{{700, 20}, {700, 600}, {1024, 20}, {1200, 1}, {300, 30}})
    prompts.push_back(Join(First(base, shared), Random(own)));
  prompts.push_back(prompts[0]);
  const Together together = AskTogether(prompts);
  EXPECT_EQ(together.runs.back().tokens, together.runs[0].tokens);
  EXPECT_EQ(together.stats.prompt_waits_total, 6u);
  EXPECT_EQ(together.stats.prefix_replay_tokens, 0u);
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (i + 1 < prompts.size()) {
      EXPECT_EQ(together.runs[i].tokens, Cold(prompts[i], 4).tokens) << i;
    }
    if (i == 0) continue;
    const int64_t shared = std::ranges::mismatch(prompts[0], prompts[i]).in1 - prompts[0].begin();
    const int64_t whole = std::min(shared, std::ssize(prompts[i]) - 1) / kPage * kPage;
    EXPECT_EQ(together.runs[i].computed, std::ssize(prompts[i]) - whole) << i;
  }
}

// A window that reaches over pages: a replay's first early tails would hold entries from before its pages'
// end.
TEST_F(PrefixReuseTest, AWindowLongerThanAPageReusesExactly) {
  const model::ScratchDirectory dir;
  checkpoint_ = dir.path();
  std::filesystem::copy(model::TinyCheckpoint(), checkpoint_, std::filesystem::copy_options::recursive);
  std::string config = model::ReadAll(checkpoint_ / "config.json");
  const std::string window = "\"sliding_window\": 32";
  ASSERT_NE(config.find(window), std::string::npos);
  config.replace(config.find(window), window.size(), "\"sliding_window\": 200");
  model::WriteAll(checkpoint_ / "config.json", config);
  page_tokens_ = 32;
  StepperOptions options;
  options.early_tail_pages = 47;  // 1,504 tokens
  Load(options);
  const std::vector<TokenId> base = Random(1490);
  (void)Ask(Join(base, Random(300)), 0);
  // Far behind any tail, so that it is replayed, and passes the first early one a page behind that.
  const std::vector<TokenId> first = Join(base, Random(600));
  EXPECT_GT(Ask(first, 0).replayed, 900);
  const std::vector<TokenId> behind_it = Join(First(first, 1510), Random(600));
  Run run = Ask(behind_it);
  EXPECT_EQ(run, Cold(behind_it));
  EXPECT_GT(run.replayed, 900) << "that tail would have had entries that no replay makes right";
  const std::vector<TokenId> behind_the_end = Join(First(first, 2080), Random(3));
  run = Ask(behind_the_end);
  EXPECT_EQ(run, Cold(behind_the_end));
  EXPECT_EQ(run.computed, 3);
}

TEST_F(PrefixReuseTest, WhatNobodyWaitsForAnyMoreIsNotLeft) {
  Load();
  const std::vector<TokenId> prompt = Random(1500), other = Join(First(prompt, 300), Random(10));
  for (const bool forgets : {true, false}) {
    model().ClearCache();
    auto reader = model().NewSequence(prompt);
    ASSERT_TRUE(reader.ok());
    const auto shared = model().WorthWaiting(*reader->sequence, other, 300);
    ASSERT_TRUE(shared && shared->asks);
    model().LeaveFor(*reader->sequence, std::ssize(other), shared->length);
    if (forgets) model().ForgetAsked(*reader->sequence);
    std::vector<float> logits;  // none are wanted
    for (size_t read = 0; read < prompt.size(); read += 300)
      Step(*reader->sequence, std::span(prompt).subspan(read, 300), false, logits);
    EXPECT_EQ(model().cache_stats().tails, ModelStepper::kPromptTails + (forgets ? 0 : 1));
  }
}

TEST_F(PrefixReuseTest, WhatOthersWaitedForGoesWithTheOneThatRead) {
  StepperOptions options;
  options.max_num_seqs = 1;
  Load(options);
  const std::vector<TokenId> prompt = Random(1500);
  {
    auto reader = model().NewSequence(prompt);
    ASSERT_TRUE(reader.ok());
    const std::vector<TokenId> other = Join(First(prompt, 300), Random(10));
    const auto shared = model().WorthWaiting(*reader->sequence, other, 300);
    ASSERT_TRUE(shared.has_value());
    EXPECT_EQ(shared->length, kPage);
    model().LeaveFor(*reader->sequence, std::ssize(other), shared->length);
  }
  (void)Ask(Random(1500), 0);
  EXPECT_EQ(model().cache_stats().tails, ModelStepper::kPromptTails) << "those of the prompt itself alone";
}

// Sequences that end before they have read anything leave nothing that nobody has.
TEST_F(PrefixReuseTest, ASequenceThatNeverStepsGivesAllBack) {
  Load();
  for (int i = 0; i < 20; ++i) {
    auto started = model().NewSequence(Random(1 + static_cast<int64_t>(rng_() % 2000)));
    ASSERT_TRUE(started.ok());
  }
  EXPECT_EQ(model().free_kv_tokens(), model().kv_tokens());
  EXPECT_TRUE(model().CheckCache().ok());
}

}  // namespace
}  // namespace millrace::engine
