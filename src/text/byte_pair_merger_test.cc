#include "text/byte_pair_merger.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>

namespace millrace::text {
namespace {

std::array<TokenId, 256> ByteTokens() {
  std::array<TokenId, 256> tokens;
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

// The rule as it is stated, one scan per merge.
std::vector<TokenId> Reference(std::string_view piece, const std::vector<Merge>& merges) {
  std::map<std::pair<TokenId, TokenId>, size_t> ranks;
  for (size_t rank = 0; rank < merges.size(); ++rank) ranks[{merges[rank].left, merges[rank].right}] = rank;
  std::vector<TokenId> ids;
  for (const char c : piece) ids.push_back(static_cast<uint8_t>(c));
  for (;;) {
    size_t best_rank = merges.size(), best = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto rank = ranks.find({ids[i], ids[i + 1]});
      if (rank != ranks.end() && rank->second < best_rank) best_rank = rank->second, best = i;
    }
    if (best_rank == merges.size()) return ids;
    ids[best] = merges[best_rank].result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

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

TEST(BytePairMerger, MergesLikeTheStatedRuleAtEveryLength) {
  std::mt19937 random(42);
  BytePairMerger::Scratch scratch;
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Merge> merges = RandomMerges(random);
    const BytePairMerger merger(ByteTokens(), merges, round % 2 == 0 ? 180 : 160);
    std::string piece;
    // Both sides of the borders between short, long and huge pieces.
    for (auto n = random() % 200; n > 0; --n) piece += static_cast<char>('a' + random() % (1 + round % 4));
    std::vector<TokenId> ids;
    merger.Encode(piece, scratch, ids);
    ASSERT_EQ(ids, Reference(piece, merges)) << piece;
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
