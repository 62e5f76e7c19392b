#include "text/byte_pair_merger.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "text/byte_pair_testing.h"

namespace millrace::text {
namespace {

// Random merges over the bytes a to d, later ones of earlier results, in shuffled rank order.
std::vector<Merge> RandomMerges(std::mt19937& random) {
  std::vector<TokenId> tokens = {'a', 'b', 'c', 'd'};
  std::map<std::pair<TokenId, TokenId>, TokenId> rules;
  for (TokenId next = 256; next < 276; ++next) {
    const TokenId left = tokens[random() % tokens.size()];
    const TokenId right = tokens[random() % tokens.size()];
    if (rules.emplace(std::pair(left, right), next).second) tokens.push_back(next);
  }
  std::vector<Merge> merges;
  for (const auto& [pair, result] : rules) merges.push_back({pair.first, pair.second, result});
  std::shuffle(merges.begin(), merges.end(), random);
  return merges;
}

TEST(BytePairMerger, MergesLikeTheStatedRule) {
  std::mt19937 random(42);
  BytePairMerger::Scratch scratch;
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Merge> merges = RandomMerges(random);
    const BytePairMerger merger(ByteTokens(), merges);
    std::string piece;
    for (auto n = random() % 100; n > 0; --n) piece += static_cast<char>('a' + random() % (1 + round % 4));
    std::vector<TokenId> ids;
    merger.Encode(piece, scratch, ids);
    ASSERT_EQ(ids, MergedByTheRule(piece, merges)) << piece;
  }
}

TEST(BytePairMerger, WithoutMergesThereIsOneTokenPerByte) {
  const BytePairMerger merger(ByteTokens(), {});
  BytePairMerger::Scratch scratch;
  std::vector<TokenId> ids = {99};
  merger.Encode("\xFF\x01", scratch, ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{99, 255, 1}));  // appended
}

TEST(BytePairMerger, TheHighestIdsAreFound) {
  constexpr TokenId kTop = (1 << 20) - 1;
  std::array<TokenId, 256> bytes = ByteTokens();
  bytes['x'] = kTop;
  const BytePairMerger merger(bytes, std::vector<Merge>{{kTop, 'y', 7}});
  BytePairMerger::Scratch scratch;
  std::vector<TokenId> ids;
  merger.Encode("xyxx", scratch, ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{7, kTop, kTop}));
}

}  // namespace
}  // namespace millrace::text
