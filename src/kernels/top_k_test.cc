#include "kernels/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/testing_golden.h"
#include "kernels/testing_targets.h"
#include "kernels/testing_values.h"

namespace millrace::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Pair {
  float score = 0;
  int32_t index = 0;
};

std::vector<int32_t> Indices(std::span<const Scored> kept) {
  std::vector<int32_t> indices;
  for (const Scored& s : kept) indices.push_back(s.index());
  return indices;
}

// The best k by sorting everything, as ascending indices.
std::vector<int32_t> SortedBest(std::vector<Pair> all, int64_t k) {
  for (Pair& s : all) {
    if (std::isnan(s.score)) s.score = -kInf;
  }
  std::sort(all.begin(), all.end(), [](const Pair& a, const Pair& b) {
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  });
  all.resize(std::min(all.size(), static_cast<size_t>(k)));
  std::vector<int32_t> indices;
  for (const Pair& s : all) indices.push_back(s.index);
  std::sort(indices.begin(), indices.end());
  return indices;
}

// Few distinct values, so that ties lie on every boundary.
std::vector<Pair> RandomPairs(Random& random, size_t n) {
  const std::vector<float> values = {-kInf, -2, -0.0f, 0.0f, 0.5f, 1, 1, 7, kInf, kNan};
  std::uniform_int_distribution<size_t> pick(0, values.size() - 1);
  std::vector<Pair> pairs;
  for (size_t i = 0; i < n; ++i) pairs.push_back({values[pick(random)], static_cast<int32_t>(i)});
  return pairs;
}

TEST(RunningTopK, EqualsSortingWhateverTheOrder) {
  Random random(1);
  for (const int64_t k : {1, 2, 3, 7, 16, 100}) {
    std::vector<Scored> buffer(RunningTopK::CapacityFor(k));
    for (const size_t n : {0, 1, 2, 3, 6, 7, 8, 14, 15, 33, 64, 250}) {
      std::vector<Pair> pairs = RandomPairs(random, n);
      for (int shuffle = 0; shuffle < 5; ++shuffle) {
        RunningTopK top(buffer, k);
        for (const Pair& s : pairs) top.Push(s.score, s.index);
        const std::span<const Scored> kept = top.Finish();
        ASSERT_EQ(Indices(kept), SortedBest(pairs, k)) << "k " << k << ", n " << n;
        for (const Scored& s : kept) ASSERT_FALSE(std::isnan(s.score()));
        std::shuffle(pairs.begin(), pairs.end(), random);
      }
    }
  }
}

TEST(Scored, OrdersByScoreThenByLowerIndexAndGivesBothBack) {
  const std::vector<Scored> falling = {{kInf, 5},  {3.5f, 0},       {0x1p-149f, 9}, {0.0f, 1},
                                       {-0.0f, 2}, {-0x1p-149f, 0}, {-2, 7},        {-0x1.fffffep127f, 0},
                                       {-kInf, 3}, {kNan, 4}};
  for (size_t i = 0; i < falling.size(); ++i) {
    for (size_t j = 0; j < falling.size(); ++j) EXPECT_EQ(falling[i] > falling[j], i < j) << i << ", " << j;
  }
  for (const float score : {kInf, 1.25f, 0.0f, -0x1p-149f, -7.5f, -kInf}) {
    for (const int32_t index : {0, 1, std::numeric_limits<int32_t>::max()}) {
      EXPECT_EQ(Bits(Scored(score, index).score()), Bits(score));
      EXPECT_EQ(Scored(score, index).index(), index);
    }
  }
}

// Long enough that the best are searched for, in orders that a bad pivot would suffer from.
TEST(RunningTopK, LongStreamsInAnyOrderEqualSorting) {
  Random random(6);
  std::normal_distribution<float> normal;
  std::vector<Pair> pairs;
  for (int32_t i = 0; i < 9000; ++i) pairs.push_back({normal(random), i * 1000 % 99991});
  const auto check = [&] {
    for (const int64_t k : {40, 512, 2048}) {
      std::vector<Scored> buffer(RunningTopK::CapacityFor(k));
      RunningTopK top(buffer, k);
      for (const Pair& s : pairs) top.Push(s.score, s.index);
      ASSERT_EQ(Indices(top.Finish()), SortedBest(pairs, k)) << k;
    }
  };
  check();
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.score < b.score; });
  check();
  std::reverse(pairs.begin(), pairs.end());
  check();
  for (Pair& s : pairs) s.score = 1;
  check();
}

TEST(RunningTopK, RunsOfAnyLengthEqualSingleScores) {
  Random random(5);
  for (const int64_t k : {1, 3, 16}) {
    for (const size_t n : {0, 1, 7, 33, 300}) {
      std::vector<Pair> pairs = RandomPairs(random, n);
      std::shuffle(pairs.begin(), pairs.end(), random);
      std::vector<float> scores;
      for (const Pair& s : pairs) scores.push_back(s.score);
      ForEachTarget([&] {
        for (const size_t run : {1, 2, 5, 15, 16, 17, 64, 300}) {
          std::vector<Scored> buffer(RunningTopK::CapacityFor(k));
          RunningTopK top(buffer, k);
          for (size_t at = 0; at < n; at += run) {
            top.PushAll(std::span(scores).subspan(at, std::min(run, n - at)),
                        [&](size_t i) { return pairs[at + i].index; });
          }
          ASSERT_EQ(Indices(top.Finish()), SortedBest(pairs, k)) << "k " << k << ", n " << n << ", " << run;
        }
      });
    }
  }
}

TEST(RunningTopK, MergedPartsEqualTheWhole) {
  Random random(2);
  for (const int64_t k : {1, 4, 20}) {
    for (const size_t n : {5, 20, 90}) {
      const std::vector<Pair> pairs = RandomPairs(random, n);
      for (size_t parts = 1; parts <= 5; ++parts) {
        std::vector<std::vector<Scored>> buffers(parts + 1, std::vector<Scored>(RunningTopK::CapacityFor(k)));
        RunningTopK whole(buffers[parts], k);
        for (size_t p = 0; p < parts; ++p) {
          RunningTopK part(buffers[p], k);
          for (size_t i = p * n / parts; i < (p + 1) * n / parts; ++i)
            part.Push(pairs[i].score, pairs[i].index);
          if (p % 2 == 1) part.Finish();  // a finished part is as good as a running one
          whole.Merge(part);
        }
        ASSERT_EQ(Indices(whole.Finish()), SortedBest(pairs, k)) << "k " << k << ", " << parts << " parts";
      }
    }
  }
}

TEST(RunningTopK, GoesOnAfterFinish) {
  Random random(3);
  const std::vector<Pair> pairs = RandomPairs(random, 60);
  std::vector<Scored> buffer(RunningTopK::CapacityFor(6));
  RunningTopK top(buffer, 6);
  for (size_t i = 0; i < pairs.size(); ++i) {
    top.Push(pairs[i].score, pairs[i].index);
    if (i % 7 == 0) {
      ASSERT_EQ(Indices(top.Finish()),
                SortedBest({pairs.begin(), pairs.begin() + static_cast<int>(i) + 1}, 6));
    }
  }
}

// Row t's valid part of a golden set: ascending, padded with -1.
std::vector<int32_t> GoldenSet(const std::vector<int32_t>& sets, size_t t, size_t width) {
  std::vector<int32_t> set;
  for (size_t i = 0; i < width && sets[t * width + i] >= 0; ++i) set.push_back(sets[t * width + i]);
  return set;
}

std::vector<int32_t> BestOf(std::span<const Pair> pairs, int64_t k) {
  std::vector<Scored> buffer(RunningTopK::CapacityFor(k));
  RunningTopK top(buffer, k);
  for (const Pair& s : pairs) top.Push(s.score, s.index);
  return Indices(top.Finish());
}

// Two-level selection as spec section 5.5 has it: the source picks entries among all visible ones and
// publishes the best blocks, the newest forced in; a later layer picks among the entries of those blocks.
TEST(RunningTopK, SelectsInTwoLevelsLikeTheGoldens) {
  MILLRACE_SKIP_WITHOUT_GOLDEN("selection");
  const UnitGolden golden("selection");
  constexpr size_t kEntries = 61;
  constexpr size_t kBlockSize = 4;
  constexpr size_t kBlocks = 16;
  constexpr size_t kTop = 8;
  const auto source = golden.Get<float>("scores_source");
  const auto later = golden.Get<float>("scores_later");
  const auto visible = golden.Get<int32_t>("visible");
  const auto candidates = golden.Get<uint8_t>("candidate_blocks");
  const auto topk_source = golden.Get<int32_t>("topk_source");
  const auto topk_later = golden.Get<int32_t>("topk_later");
  for (size_t t = 0; t < visible.size(); ++t) {
    SCOPED_TRACE(t);
    const auto n = static_cast<size_t>(visible[t]);
    std::vector<Pair> entries;
    std::vector<Pair> blocks;
    for (size_t j = 0; j < n; ++j) {
      const float score = source[t * kEntries + j];
      entries.push_back({score, static_cast<int32_t>(j)});
      if (j % kBlockSize == 0) blocks.push_back({score, static_cast<int32_t>(j / kBlockSize)});
      blocks.back().score = std::max(blocks.back().score, score);
    }
    if (n > 0) blocks.back().score = kInf;
    EXPECT_EQ(BestOf(entries, kTop), GoldenSet(topk_source, t, kTop));
    const std::vector<int32_t> chosen = BestOf(blocks, 4);
    std::vector<uint8_t> mask(kBlocks);
    std::vector<Pair> inside;
    for (const int32_t block : chosen) {
      mask[static_cast<size_t>(block)] = 1;
      const size_t first = static_cast<size_t>(block) * kBlockSize;
      for (size_t j = first; j < std::min(first + kBlockSize, n); ++j)
        inside.push_back({later[t * kEntries + j], static_cast<int32_t>(j)});
    }
    EXPECT_TRUE(std::equal(mask.begin(), mask.end(), candidates.begin() + static_cast<int>(t * kBlocks)));
    EXPECT_EQ(BestOf(inside, kTop), GoldenSet(topk_later, t, kTop));
  }
}

}  // namespace
}  // namespace millrace::kernels
