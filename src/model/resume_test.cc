#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <random>
#include <vector>

#include "model/checkpoint_testing.h"
#include "model/forward_testing.h"

// A sequence that begins behind tokens which another one has computed, from a tail or by bounded replay,
// against a cold run: no bit of what it answers may differ.

namespace millrace::model {
namespace {

constexpr int64_t kPage = kMinPageTokens;
constexpr int64_t kMaxTokens = 768;
constexpr int kDecodeSteps = 3;

class ResumeTest : public testing::TestWithParam<LateLayers> {
 protected:
  void SetUp() override {
    model_ = LoadedModel::Open(
        TinyCheckpoint(), 2,
        {.max_batch_tokens = 160, .max_batch_items = 2, .late_layers = GetParam(), .page_tokens = kPage});
    ASSERT_NE(model_, nullptr);
    std::mt19937 rng(5);
    for (int i = 0; i < 700; ++i) prompt_.push_back(static_cast<TokenId>(rng() % 1024));
  }

  Forward& forward() { return *model_->forward; }
  const LayerPlan& plan() const { return model_->forward->plan(); }
  int64_t reach() const { return plan().config.sliding_window - 1; }
  std::span<const TokenId> Prompt(int64_t n) const {
    return std::span(prompt_).first(static_cast<size_t>(n));
  }

  // Appends `tokens` in chunks of 160; the logits of the last if they are wanted.
  std::vector<float> Read(TestSequence& sequence, std::span<const TokenId> tokens, int64_t results_from,
                          std::span<const TailRequest> tails = {}) {
    std::vector<float> logits(static_cast<size_t>(model_->vocab_size()));
    while (!tokens.empty()) {
      const int64_t start = sequence.state.length();
      const auto chunk = tokens.first(std::min<size_t>(160, tokens.size()));
      tokens = tokens.subspan(chunk.size());
      const int64_t end = start + static_cast<int64_t>(chunk.size());
      std::vector<TailRequest> on_the_way;
      for (const TailRequest& tail : tails) {
        if (tail.length > start && tail.length <= end) on_the_way.push_back(tail);
      }
      const BatchItem item{.state = &sequence.state,
                           .tokens = chunk,
                           .logits = tokens.empty() ? LogitsWanted::kLast : LogitsWanted::kNone,
                           .results_from = results_from,
                           .tails = on_the_way};
      forward().Run(std::span(&item, 1), logits);
    }
    return logits;
  }

  // The logits behind the prompt's first `n` tokens and of some greedy tokens more.
  std::vector<float> Finish(TestSequence& sequence, int64_t n, int64_t results_from) {
    std::vector<float> all =
        Read(sequence, Prompt(n).subspan(static_cast<size_t>(sequence.state.length())), results_from);
    std::vector<float> logits = all;
    for (int i = 0; i < kDecodeSteps; ++i) {
      const auto token = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
      logits = Read(sequence, std::span(&token, 1), 0);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  std::unique_ptr<TestSequence> NewSequence() {
    return std::make_unique<TestSequence>(forward(), kMaxTokens);
  }

  // A sequence with copies of the first `shared` tokens' pages of `owner`, at `length` of them.
  std::unique_ptr<TestSequence> Resumed(const TestSequence& owner, int64_t shared, int64_t length,
                                        int64_t results_from, std::span<const std::byte> tail) {
    auto sequence = NewSequence();
    for (int64_t page = 0; page < shared / kPage; ++page) {
      std::memcpy(sequence->state.pages[static_cast<size_t>(page)],
                  owner.state.pages[static_cast<size_t>(page)], forward().page_layout().page_bytes);
    }
    forward().Resume(sequence->state, Prompt(shared), length, results_from, tail);
    return sequence;
  }

  bool SamePages(const TestSequence& a, const TestSequence& b, int64_t tokens) {
    for (int64_t page = 0; page < tokens / kPage; ++page) {
      if (std::memcmp(a.state.pages[static_cast<size_t>(page)], b.state.pages[static_cast<size_t>(page)],
                      forward().page_layout().page_bytes) != 0)
        return false;
    }
    return true;
  }

  static bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  // Room for the tail behind `length` tokens, filled with NaN codes: what it leaves out must not be read.
  TailRequest Tail(int64_t length) {
    auto& rings = tails_.emplace_back(WindowLayout(plan()).bytes(), std::byte{0x7F});
    return {.length = length, .rings = rings};
  }

  std::unique_ptr<LoadedModel> model_;
  std::vector<TokenId> prompt_;
  std::list<std::vector<std::byte>> tails_;
};

TEST_P(ResumeTest, FromAFullTailAtAnyLength) {
  auto cold = NewSequence();
  std::vector<TailRequest> tails;
  for (int64_t length = kPage; length < 600; length += 3 * kPage) tails.push_back(Tail(length));
  (void)Read(*cold, Prompt(600), kPage, tails);
  for (const TailRequest& tail : tails) {
    for (const int64_t n : {tail.length + 1, tail.length + kPage - 1, tail.length + kPage + 1}) {
      auto alone = NewSequence();
      const std::vector<float> expected = Finish(*alone, n, n - 1);
      auto resumed = Resumed(*cold, tail.length, tail.length, tail.length, tail.rings);
      EXPECT_TRUE(SameBits(Finish(*resumed, n, n - 1), expected)) << tail.length << " of " << n;
      EXPECT_TRUE(SamePages(*resumed, *alone, n)) << tail.length << " of " << n;
    }
  }
}

TEST_P(ResumeTest, FromATailThatAPageOutlivesByPages) {
  auto cold = NewSequence();
  const TailRequest tail = Tail(3 * kPage);
  (void)Read(*cold, Prompt(600), 3 * kPage, std::span(&tail, 1));
  auto alone = NewSequence();
  const std::vector<float> expected = Finish(*alone, 500, 499);
  auto resumed = Resumed(*cold, 15 * kPage, tail.length, tail.length, tail.rings);
  EXPECT_TRUE(SameBits(Finish(*resumed, 500, 499), expected));
  EXPECT_TRUE(SamePages(*resumed, *alone, 500));
}

TEST_P(ResumeTest, FromAnEarlyTailWhereTheRestIsLongEnough) {
  auto cold = NewSequence();
  const TailRequest tail = Tail(2 * kPage);
  (void)Read(*cold, Prompt(600), 599, std::span(&tail, 1));
  int tried = 0;
  for (int64_t n = 2 * kPage + 1; n < 400; n += 23) {
    if (!plan().EarlyRingsSuffice(tail.length, n - 1)) continue;
    ++tried;
    auto alone = NewSequence();
    const std::vector<float> expected = Finish(*alone, n, n - 1);
    auto resumed = Resumed(*cold, tail.length, tail.length, n - 1, tail.rings);
    EXPECT_TRUE(SameBits(Finish(*resumed, n, n - 1), expected)) << n;
    EXPECT_TRUE(SamePages(*resumed, *alone, n)) << n;
  }
  EXPECT_GT(tried, 5);
}

TEST_P(ResumeTest, ByBoundedReplayWhereNoTailIsLeft) {
  auto cold = NewSequence();
  (void)Read(*cold, Prompt(700), 699);
  const auto bound = static_cast<int64_t>(plan().layers.size()) * reach();
  for (int64_t shared = kPage; shared < 680; shared += 5 * kPage) {
    for (const int64_t n : {shared + 1, shared + 19, int64_t{700}}) {
      const int64_t start = plan().ReplayStart(shared, n - 1);
      EXPECT_LE(shared - start, bound + 1);
      auto alone = NewSequence();
      const std::vector<float> expected = Finish(*alone, n, n - 1);
      auto resumed = Resumed(*cold, shared, start, n - 1, {});
      EXPECT_TRUE(SameBits(Finish(*resumed, n, n - 1), expected)) << shared << " of " << n;
      EXPECT_TRUE(SamePages(*resumed, *alone, n)) << shared << " of " << n;
    }
  }
}

// The layers that replay skips are missed: from half way, something that is asked for differs. (Near the
// bound a chain of marginal entries through all layers is left, and rounding hides most of what they change.)
TEST_P(ResumeTest, AMuchShorterReplayIsNotExact) {
  auto cold = NewSequence();
  (void)Read(*cold, Prompt(700), 699);
  auto alone = NewSequence();
  const std::vector<float> expected = Finish(*alone, 641, 640);
  const int64_t start = (plan().ReplayStart(640, 640) + 640) / 4 * 2;
  auto resumed = Resumed(*cold, 640, start, 640, {});
  EXPECT_FALSE(SameBits(Finish(*resumed, 641, 640), expected));
}

// Tails that a resumed sequence takes on its way are those of a cold one.
TEST_P(ResumeTest, TailsOfAReplayAreThoseOfAColdRun) {
  auto cold = NewSequence();
  const TailRequest expected = Tail(640);
  (void)Read(*cold, Prompt(700), 640, std::span(&expected, 1));
  const TailRequest tail = Tail(640);
  auto resumed = Resumed(*cold, 512, plan().ReplayStart(512, 640), 640, {});
  (void)Read(*resumed, Prompt(700).subspan(static_cast<size_t>(resumed->state.length())), 640,
             std::span(&tail, 1));
  EXPECT_TRUE(std::ranges::equal(tail.rings, expected.rings));
}

// Somebody wants a tail inside a prompt that has been read in part for its end alone. Whatever CanGive allows
// is the tail of a cold run, however the sequence began, and its own answer stays.
TEST_P(ResumeTest, ResultsMayBeWantedEarlierWhileNothingTheyNeedIsLeftOut) {
  constexpr int64_t kEnd = 450;
  auto owner = NewSequence();
  const TailRequest early = Tail(4 * kPage);
  (void)Read(*owner, Prompt(kEnd), kEnd - 1, std::span(&early, 1));
  auto alone = NewSequence();
  const std::vector<float> expected = Finish(*alone, kEnd, kEnd - 1);
  const auto rest = [&](const TestSequence& sequence, int64_t end) {
    return Prompt(end).subspan(static_cast<size_t>(sequence.state.length()));
  };
  const auto try_all = [&](auto begin, int64_t first, int64_t step) {
    std::vector<int64_t> given;
    for (int64_t length = first; length < 400; length += step) {
      std::unique_ptr<TestSequence> sequence = begin();
      const BatchItem item{.state = &sequence->state,
                           .tokens = rest(*sequence, kEnd).first(90),
                           .logits = LogitsWanted::kNone,
                           .results_from = kEnd - 1};
      forward().Run(std::span(&item, 1), {});
      if (!sequence->state.CanGive(plan(), length)) continue;
      given.push_back(length);
      const TailRequest tail = Tail(length), of_cold = Tail(length);
      (void)Read(*sequence, rest(*sequence, length + 7), length, std::span(&tail, 1));
      auto fresh = NewSequence();
      (void)Read(*fresh, Prompt(length + 7), length, std::span(&of_cold, 1));
      EXPECT_TRUE(std::ranges::equal(tail.rings, of_cold.rings)) << length;
      EXPECT_TRUE(SameBits(Finish(*sequence, kEnd, kEnd - 1), expected)) << length;
    }
    return given;
  };
  const auto cold = [&] { return NewSequence(); };
  EXPECT_EQ(try_all(cold, 3 * kPage, 3 * kPage).back(), 12 * kPage);
  const auto from_early_tail = [&] {
    return Resumed(*owner, early.length, early.length, kEnd - 1, early.rings);
  };
  EXPECT_EQ(try_all(from_early_tail, 9 * kPage, 3 * kPage).size(), 2u);
  const int64_t start = plan().ReplayStart(6 * kPage, kEnd - 1);
  const int64_t exact = start + std::ssize(plan().layers) * reach();
  const auto replayed = [&] { return Resumed(*owner, 6 * kPage, start, kEnd - 1, {}); };
  EXPECT_THAT(try_all(replayed, 6 * kPage, kPage), testing::Each(testing::Ge(exact)));
}

INSTANTIATE_TEST_SUITE_P(Both, ResumeTest, testing::Values(LateLayers::kNeeded, LateLayers::kAll),
                         [](const auto& both) {
                           return both.param == LateLayers::kNeeded ? "Needed" : "All";
                         });

}  // namespace
}  // namespace millrace::model
