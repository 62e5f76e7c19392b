#include "text/rank_queue.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace millrace::text {
namespace {

// Pushes in order and out of order, ranks below and above the last one popped, emptied and used again.
TEST(RankQueue, GivesTheLowestRankAndPlaceWhateverTheOrderOfPushes) {
  std::mt19937 random(1);
  RankQueue queue;
  for (const uint32_t n_ranks : {1u, 64u, 65u, 5000u, 300'000u, 70u}) {
    queue.Reset(n_ranks);
    std::multiset<RankQueue::Entry> expected;
    for (int step = 0; step < 20'000; ++step) {
      if (expected.empty() || random() % 5 < 3) {
        const RankQueue::Entry entry{static_cast<uint32_t>(random() % n_ranks),
                                     static_cast<uint32_t>(random() % 1000)};
        queue.Push(entry.rank, entry.place);
        expected.insert(entry);
      } else {
        ASSERT_EQ(queue.Pop(), *expected.begin());
        expected.erase(expected.begin());
      }
      ASSERT_EQ(queue.empty(), expected.empty());
    }
  }
}

TEST(RankQueue, ResetEmptiesIt) {
  RankQueue queue;
  EXPECT_TRUE(queue.empty());
  queue.Reset(10);
  queue.Push(9, 5);
  queue.Push(9, 4);
  queue.Reset(10);
  EXPECT_TRUE(queue.empty());
  queue.Push(9, 1);
  EXPECT_EQ(queue.Pop(), (RankQueue::Entry{9, 1}));
}

}  // namespace
}  // namespace millrace::text
