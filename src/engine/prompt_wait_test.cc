#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "engine/engine_rig.h"

// Prompts that begin alike and come together: one is read, the others wait for what they share with it.

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

constexpr int64_t kPage = 8;
constexpr int64_t kShared = 4 * kPage;
constexpr int64_t kOwn = 5;

// What all begin with, then tokens of its own.
std::vector<TokenId> Prompt(TokenId own, int64_t shared = kShared, int64_t n_own = kOwn) {
  std::vector<TokenId> prompt(static_cast<size_t>(shared + n_own), own);
  for (int64_t i = 0; i < shared; ++i) prompt[static_cast<size_t>(i)] = static_cast<TokenId>(100 + i);
  return prompt;
}

std::vector<TokenId> Other(int64_t n, TokenId token = 9) {
  return std::vector<TokenId>(static_cast<size_t>(n), token);
}

class PromptWait : public testing::Test {
 protected:
  void Make(EngineOptions options = {.max_num_seqs = 8}, int64_t pool_tokens = INT64_MAX,
            int64_t chunk = kPage) {
    options.prefill_chunk = chunk;
    options.pace = {.max_gap_seconds = 0, .min_decode_share = 0};
    rig_ = std::make_unique<Rig>(
        ScriptedModelOptions{.max_batch_tokens = 2 * chunk, .pool_tokens = pool_tokens, .page_tokens = kPage},
        options);
    rig_->model->PlayByDefault({20, 21, 22});
  }
  Rig& rig() { return *rig_; }
  EngineStats stats() { return rig_->engine->stats(); }
  // The tokens of the n-th sequence that each step had.
  std::vector<int64_t> StepsOf(uint64_t sequence) {
    std::vector<int64_t> tokens;
    for (const auto& step : rig_->model->recorded_steps()) {
      const auto item = std::ranges::find(step, sequence, &ScriptedModel::RecordedItem::sequence);
      tokens.push_back(item == step.end() ? 0 : std::ssize(item->tokens));
    }
    return tokens;
  }
  // The first sequence that read the token.
  uint64_t ReaderOf(TokenId token) {
    for (const auto& step : rig_->model->recorded_steps()) {
      for (const auto& item : step)
        if (std::ranges::find(item.tokens, token) != item.tokens.end()) return item.sequence;
    }
    return 0;
  }
  // Lets all run; each has the whole answer.
  void ExpectAllFinish(const std::vector<Rig::Started>& all) {
    rig_->model->ReleaseSteps();
    for (const Rig::Started& one : all) {
      EXPECT_EQ(Reason(one.sink), FinishReason::kStop);
      EXPECT_THAT(one.sink->tokens(), ElementsAre(20, 21, 22, kEos));
    }
    EXPECT_EQ(rig_->model->live_sequences(), 0);
    EXPECT_EQ(stats().running, 0);
    EXPECT_EQ(stats().waiting, 0);
    EXPECT_EQ(stats().waiting_tokens, 0);
  }

  std::unique_ptr<Rig> rig_;
};

TEST_F(PromptWait, OneReadsWhatAllShareAndTheOthersWaitWithoutMemory) {
  Make();
  std::vector<Rig::Started> all = {rig().StartHeld(Request(Prompt(1)))};
  for (TokenId own = 2; own < 9; ++own) all.push_back(rig().Start(Request(Prompt(own))));
  rig().RunSteps(3);
  EXPECT_EQ(stats().running, 1);
  EXPECT_EQ(stats().waiting, 7);
  EXPECT_EQ(rig().model->reserved_tokens(), kShared + kOwn) << "nothing is held for those that wait";
  EXPECT_EQ(stats().waiting_tokens, 7 * (kPage + kOwn)) << "without what they came in time to wait for";
  rig().RunSteps(1);
  EXPECT_EQ(stats().running, 8) << "at once when it is read";
  ExpectAllFinish(all);
  EXPECT_EQ(stats().prompt_tokens_total, static_cast<uint64_t>(kShared + 8 * kOwn));
  EXPECT_EQ(stats().prefix_hit_tokens, static_cast<uint64_t>(7 * kShared));
  EXPECT_EQ(stats().prompt_waits_total, 7u);
  EXPECT_EQ(all[0].sink->WaitForFinish()->cached_tokens, 0);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_EQ(all[i].sink->WaitForFinish()->cached_tokens, kShared);
}

TEST_F(PromptWait, TheSamePromptManyTimesIsReadOnce) {
  Make();
  std::vector<Rig::Started> all = {rig().StartHeld(Request(Prompt(1)))};
  for (int i = 1; i < 5; ++i) all.push_back(rig().Start(Request(Prompt(1))));
  ExpectAllFinish(all);
  EXPECT_EQ(stats().prompt_tokens_total, static_cast<uint64_t>(kShared + 5 * kOwn)) << "and a part of a page";
}

TEST_F(PromptWait, LessThanAPageInCommonIsNotWaitedFor) {
  Make();
  const auto first = rig().StartHeld(Request(Prompt(1, kPage - 1, 20)));
  const auto second = rig().Start(Request(Prompt(2, kPage - 1, 20)));
  rig().RunSteps(1);
  EXPECT_EQ(stats().running, 2);
  ExpectAllFinish({first, second});
  EXPECT_EQ(stats().prompt_waits_total, 0u);
}

TEST_F(PromptWait, APromptThatIsReadAlreadyIsNotWaitedFor) {
  Make();
  const auto first = rig().StartHeld(Request(Prompt(1, kShared, 3 * kPage)));
  rig().RunSteps(4);
  const auto second = rig().Start(Request(Prompt(2)));
  rig().RunSteps(1);
  EXPECT_EQ(stats().running, 2);
  ExpectAllFinish({first, second});
  EXPECT_EQ(second.sink->WaitForFinish()->cached_tokens, kShared);
}

TEST_F(PromptWait, AnotherPromptBehindThoseThatWaitIsNotDelayed) {
  Make({.max_num_seqs = 3});
  const auto reader = rig().StartHeld(Request(Prompt(1)));
  const auto waits = rig().Start(Request(Prompt(2)));
  const auto other = rig().Start(Request(Other(4)));
  const auto late = rig().Start(Request(Other(4, 8)));
  rig().RunSteps(2);
  EXPECT_EQ(stats().running, 2);
  EXPECT_THAT(StepsOf(2), ElementsAre(0, 4)) << "in the first step that it can have";
  rig().model->ReleaseSteps();
  for (const auto& one : {reader, waits, other, late}) EXPECT_EQ(Reason(one.sink), FinishReason::kStop);
  EXPECT_EQ(ReaderOf(2), 3u) << "who waits keeps its place";
  EXPECT_EQ(ReaderOf(8), 4u);
}

// All slots are those of the reader and of who waits for it: a later one with a long answer does not pass.
TEST_F(PromptWait, WhoWaitsKeepsASlotFromThoseBehind) {
  Make({.max_num_seqs = 2});
  rig().model->Play(Other(4), std::vector<TokenId>(50, 30));
  const auto reader = rig().StartHeld(Request(Prompt(1)));
  const auto waits = rig().Start(Request(Prompt(2)));
  const auto later = rig().Start(Request(Other(4)));
  rig().RunSteps(3);
  EXPECT_EQ(stats().running, 1);
  EXPECT_EQ(stats().waiting, 2);
  rig().RunSteps(2);
  EXPECT_EQ(stats().running, 2);
  EXPECT_EQ(ReaderOf(2), 2u);
  rig().model->ReleaseSteps();
  EXPECT_EQ(Reason(later.sink), FinishReason::kStop);
  ExpectAllFinish({reader, waits});
  EXPECT_EQ(ReaderOf(9), 3u);
}

TEST_F(PromptWait, TheChoicesOfOneRequestBeginBeforeLaterRequests) {
  Make({.max_num_seqs = 4});
  std::vector<Rig::Started> all = {rig().StartHeld(Request(Prompt(1)))};
  for (int i = 1; i < 4; ++i) all.push_back(rig().Start(Request(Prompt(1))));
  for (int i = 0; i < 3; ++i) all.push_back(rig().Start(Request(Other(3))));
  rig().RunSteps(2);
  EXPECT_EQ(stats().running, 1);
  EXPECT_EQ(stats().waiting, 6);
  rig().RunSteps(3);
  EXPECT_EQ(stats().running, 4);
  EXPECT_EQ(stats().waiting, 3);
  EXPECT_EQ(ReaderOf(9), 0u);
  ExpectAllFinish(all);
}

TEST_F(PromptWait, WhoWaitsForAReaderDoesNotWaitForASlot) {
  Make({.max_num_seqs = 8, .max_queue_seconds = 0.1});
  const auto reader = rig().StartHeld(Request(Prompt(1)));
  const auto waits = rig().Start(Request(Prompt(2)));
  rig().RunSteps(1);
  EXPECT_EQ(stats().waiting, 1);
  std::this_thread::sleep_for(110ms);
  rig().RunSteps(1);
  EXPECT_EQ(waits.sink->finishes(), 0);
  ExpectAllFinish({reader, waits});
}

// One passes the one that waits and takes the memory that it would have had. It gives it back, and comes
// after it from then on.
TEST_F(PromptWait, WhoPassedGivesWayToTheOneThatWaited) {
  constexpr int64_t kPassing = 20;
  Make({.max_num_seqs = 3}, /*pool_tokens=*/2 * (kShared + kOwn) + 10);
  rig().model->Play(Other(kPassing), std::vector<TokenId>(12, 30));
  const auto reader = rig().StartHeld(Request(Prompt(1)));
  const auto waits = rig().Start(Request(Prompt(2)));
  const auto passes = rig().Start(Request(Other(kPassing)));
  rig().RunSteps(5);
  EXPECT_EQ(ReaderOf(9), 2u);
  EXPECT_EQ(ReaderOf(2), 0u);
  rig().RunSteps(4);
  EXPECT_EQ(stats().preemptions_total, 1u);
  EXPECT_EQ(ReaderOf(2), 3u);
  rig().model->ReleaseSteps();
  EXPECT_EQ(Reason(passes.sink), FinishReason::kStop);
  ExpectAllFinish({reader, waits});
}

// As above, but there is room for all until they grow.
TEST_F(PromptWait, WhoPassedIsTheFirstToGiveWayWhenAllGrow) {
  constexpr int64_t kPassing = 20;
  Make({.max_num_seqs = 3}, /*pool_tokens=*/2 * (kShared + kOwn) + kPassing + 8);
  rig().model->Play(Other(kPassing), std::vector<TokenId>(12, 30));
  const auto reader = rig().StartHeld(Request(Prompt(1)));
  const auto waits = rig().Start(Request(Prompt(2)));
  const auto passes = rig().Start(Request(Other(kPassing)));
  rig().model->ReleaseSteps();
  EXPECT_EQ(Reason(passes.sink), FinishReason::kStop);
  ExpectAllFinish({reader, waits});
  EXPECT_EQ(stats().preemptions_total, 1u);
  EXPECT_EQ(ReaderOf(9), 2u);
  EXPECT_EQ(ReaderOf(2), 3u) << "it was begun beside the one that passed";
  bool came_back = false;
  for (const auto& step : rig().model->recorded_steps()) {
    for (const auto& item : step) came_back |= item.sequence == 4 && item.tokens[0] == 9;
  }
  EXPECT_TRUE(came_back);
}

TEST_F(PromptWait, WhoWaitsForOneThatGivesWayLooksAnew) {
  Make({.max_num_seqs = 8}, /*pool_tokens=*/110);
  const auto reader = rig().StartHeld(Request(Prompt(1)));
  const auto waits = rig().Start(Request(Prompt(2)));
  const auto passes = rig().Start(Request(Other(60)));
  const auto waits_for_it = rig().Start(Request(Other(58)));
  rig().RunSteps(1);
  EXPECT_EQ(stats().prompt_waits_total, 2u);
  rig().RunSteps(8);
  EXPECT_EQ(stats().preemptions_total, 1u);
  EXPECT_EQ(ReaderOf(2), 3u);
  ExpectAllFinish({reader, waits, passes, waits_for_it});
}

// Who wants a tail is gone before the reader comes there.
TEST_F(PromptWait, NothingIsLeftForThoseThatAreGone) {
  Make();
  const auto reader = rig().StartHeld(Request(Prompt(1)));
  const auto cancelled = rig().Start(Request(Prompt(2, 3 * kPage)));
  GenerationRequest hurried = Request(Prompt(3, 3 * kPage));
  hurried.deadline = std::chrono::steady_clock::now() + 200ms;
  const auto overdue = rig().Start(std::move(hurried));
  const auto also_cancelled = rig().Start(Request(Prompt(4)));
  const auto stays = rig().Start(Request(Prompt(5)));
  rig().RunSteps(1);
  EXPECT_EQ(stats().waiting, 4);
  rig().engine->Cancel(cancelled.id);
  rig().engine->Cancel(also_cancelled.id);
  std::this_thread::sleep_for(210ms);
  ExpectAllFinish({reader, stays});
  EXPECT_EQ(Reason(cancelled.sink), FinishReason::kCancelled);
  EXPECT_EQ(Reason(overdue.sink), FinishReason::kTimeout);
  EXPECT_EQ(rig().model->times_left(), 1) << "for the one that stays";
}

TEST_F(PromptWait, WhenTheReaderIsCancelledTheFirstThatWaitsReads) {
  Make();
  const auto reader = rig().StartHeld(Request(Prompt(1)));
  std::vector<Rig::Started> others;
  for (TokenId own = 2; own < 5; ++own) others.push_back(rig().Start(Request(Prompt(own))));
  rig().RunSteps(2);
  rig().engine->Cancel(reader.id);
  rig().RunSteps(1);
  EXPECT_EQ(Reason(reader.sink), FinishReason::kCancelled);
  EXPECT_EQ(stats().running, 1);
  EXPECT_EQ(stats().waiting, 2);
  ExpectAllFinish(others);
  // The scripted model forgets what a sequence had that is gone.
  EXPECT_EQ(stats().prompt_tokens_total, static_cast<uint64_t>(3 * kPage + kShared + 3 * kOwn));
}

TEST_F(PromptWait, WhenTheReaderIsOverdueTheFirstThatWaitsReads) {
  Make();
  GenerationRequest hurried = Request(Prompt(1));
  hurried.deadline = std::chrono::steady_clock::now() + 200ms;
  const auto reader = rig().StartHeld(std::move(hurried));
  const std::vector<Rig::Started> others = {rig().Start(Request(Prompt(2))), rig().Start(Request(Prompt(3)))};
  rig().RunSteps(1);
  EXPECT_EQ(stats().waiting, 2);
  std::this_thread::sleep_for(210ms);
  rig().RunSteps(1);
  EXPECT_EQ(Reason(reader.sink), FinishReason::kTimeout);
  EXPECT_EQ(stats().running, 1);
  ExpectAllFinish(others);
}

TEST_F(PromptWait, WhenTheReadersStepFailsTheFirstThatWaitsReads) {
  Make();
  const auto reader = rig().StartHeld(Request(Prompt(1)));
  const std::vector<Rig::Started> others = {rig().Start(Request(Prompt(2))), rig().Start(Request(Prompt(3)))};
  rig().RunSteps(1);
  rig().model->FailSteps(1);
  rig().RunSteps(1);
  EXPECT_EQ(Reason(reader.sink), FinishReason::kError);
  EXPECT_EQ(stats().running, 1);
  EXPECT_EQ(stats().waiting, 1);
  ExpectAllFinish(others);
}

TEST_F(PromptWait, WhoWaitsCanBeCancelledAndRunsOutOfTime) {
  Make();
  const auto reader = rig().StartHeld(Request(Prompt(1)));
  const auto cancelled = rig().Start(Request(Prompt(2)));
  GenerationRequest hurried = Request(Prompt(3));
  hurried.deadline = std::chrono::steady_clock::now() + 100ms;
  const auto overdue = rig().Start(std::move(hurried));
  rig().RunSteps(1);
  EXPECT_EQ(stats().waiting, 2);
  rig().engine->Cancel(cancelled.id);
  std::this_thread::sleep_for(110ms);
  rig().RunSteps(1);
  EXPECT_EQ(Reason(cancelled.sink), FinishReason::kCancelled);
  EXPECT_EQ(Reason(overdue.sink), FinishReason::kTimeout);
  EXPECT_EQ(stats().waiting, 0);
  ExpectAllFinish({reader});
}

TEST_F(PromptWait, APoolForOneAtATimeServesThemAll) {
  Make({.max_num_seqs = 8}, /*pool_tokens=*/kShared + kOwn + 10);
  std::vector<Rig::Started> all = {rig().StartHeld(Request(Prompt(1)))};
  for (TokenId own = 2; own < 6; ++own) all.push_back(rig().Start(Request(Prompt(own))));
  ExpectAllFinish(all);
}

TEST_F(PromptWait, APreemptedReaderGoesOnBeforeThoseThatWait) {
  // One decodes until the reader, admitted last, has to give way.
  Make({.max_num_seqs = 8}, /*pool_tokens=*/4 + kShared + kOwn + 2);
  rig().model->Play(Other(4), std::vector<TokenId>(12, 30));
  const auto decodes = rig().StartHeld(Request(Other(4)));
  const auto reader = rig().Start(Request(Prompt(1)));
  const auto waits = rig().Start(Request(Prompt(2)));
  rig().RunSteps(4);
  EXPECT_EQ(stats().preemptions_total, 1u);
  EXPECT_EQ(stats().running, 1);
  rig().model->ReleaseSteps();
  EXPECT_EQ(Reason(decodes.sink), FinishReason::kStop);
  ExpectAllFinish({reader, waits});
  EXPECT_LT(ReaderOf(1), ReaderOf(2));
}

// One behind those that wait does not fit. That must not keep them from beginning.
TEST_F(PromptWait, WhoHasWaitedBeginsAlthoughTheNextDoesNotFit) {
  Make({.max_num_seqs = 8}, /*pool_tokens=*/2 * (kShared + kOwn) + 10);
  const auto reader = rig().StartHeld(Request(Prompt(1)));
  const auto waits = rig().Start(Request(Prompt(2)));
  const auto large = rig().Start(Request(Other(60)));
  rig().RunSteps(3);
  EXPECT_EQ(stats().running, 1);
  rig().RunSteps(1);
  EXPECT_EQ(stats().running, 2);
  EXPECT_EQ(stats().waiting, 1);
  ExpectAllFinish({reader, waits, large});
}

// Says that whoever shares all of kShared with another saves a page of it.
class SavesAPage : public ScriptedModel {
 public:
  using ScriptedModel::ScriptedModel;
  std::optional<SharedReading> WorthWaiting(const StepSequence& /*reader*/,
                                            std::span<const TokenId> /*tokens*/,
                                            int64_t common) const noexcept override {
    if (common < kShared) return std::nullopt;
    return SharedReading{.length = kShared, .saved = kPage};
  }
};

// What a cache has goes further than its reader has come: it is there first without it.
TEST(PromptWaitForALateReader, IsNotWorthIt) {
  auto owned = std::make_unique<SavesAPage>(ScriptedModelOptions{.max_batch_tokens = kPage});
  SavesAPage* const model = owned.get();
  model->HoldSteps();
  Engine engine(std::move(owned), {.prefill_chunk = kPage});
  const auto reader = std::make_shared<RecordingSink>(), late = std::make_shared<RecordingSink>(),
             in_time = std::make_shared<RecordingSink>();
  const auto step = [&] {
    model->AllowSteps(1);
    ASSERT_TRUE(model->WaitUntilHeld());
  };
  ASSERT_TRUE(engine.Submit(Request(Prompt(1)), reader).ok());
  ASSERT_TRUE(model->WaitUntilHeld());
  ASSERT_TRUE(engine.Submit(Request(Prompt(2)), late).ok());
  step();
  EXPECT_EQ(engine.stats().running, 2);
  EXPECT_EQ(engine.stats().prompt_waits_total, 0u);
  for (int i = 0; i < 4; ++i) step();  // half of each is the reader's: 24 tokens
  ASSERT_TRUE(engine.Submit(Request(Prompt(3)), in_time).ok());
  step();
  EXPECT_EQ(engine.stats().running, 2);
  EXPECT_EQ(engine.stats().prompt_waits_total, 1u);
  model->ReleaseSteps();
  for (const auto& sink : {reader, late, in_time}) EXPECT_EQ(Reason(sink), FinishReason::kStop);
}

// A long prompt would read last. A short one waits for it, and is not to wait longer for that.
TEST_F(PromptWait, TheShortestWaitsForALongOneThatIsReadAsIfItWereShort) {
  Make({.max_num_seqs = 8, .schedule_policy = SchedulePolicy::kShortest});
  const auto oldest = rig().StartHeld(Request(Other(2000, 7)));
  const auto reader = rig().Start(Request(Prompt(1, kShared, 1000)));
  rig().RunSteps(1);
  const auto waits = rig().Start(Request(Prompt(2)));
  const auto shorter_than_the_reader = rig().Start(Request(Other(200)));
  rig().RunSteps(7);  // 6 of 8 tokens each, the rest is the oldest's
  EXPECT_EQ(stats().prompt_waits_total, 1u);
  EXPECT_EQ(stats().running, 4) << "its reader has read what they share";
  rig().model->ReleaseSteps();
  for (const auto& one : {oldest, reader, waits, shorter_than_the_reader})
    EXPECT_EQ(Reason(one.sink), FinishReason::kStop);
}

}  // namespace
}  // namespace millrace::engine
