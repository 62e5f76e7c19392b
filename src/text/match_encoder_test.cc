#include "text/match_encoder.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_pair_testing.h"

namespace millrace::text {
namespace {

std::vector<TokenId> Encoded(const MatchEncoder& encoder, std::string_view piece) {
  MatchEncoder::Scratch scratch;
  std::vector<TokenId> ids;
  encoder.Encode(piece, scratch, ids);
  return ids;
}

// Few letters, so that many cuts are possible, runs of one among them, and merges that make no token of their
// own bytes.
TEST(MatchEncoder, EncodesLikeTheStatedRule) {
  std::mt19937 random(42);
  MatchEncoder::Scratch scratch;
  for (int round = 0; round < 150; ++round) {
    const std::vector<Merge> merges = RandomOrderedMerges(random, "abcd", 4 + random() % 40);
    const auto encoder = MatchEncoder::Build(ByteTokens(), merges);
    ASSERT_TRUE(encoder.has_value());
    for (int letters = 1; letters <= 12; ++letters) {
      std::string piece;
      for (auto n = random() % 60; n > 0; --n) piece += static_cast<char>('a' + random() % (1 + letters % 4));
      std::vector<TokenId> ids;
      encoder->Encode(piece, scratch, ids);
      ASSERT_EQ(ids, MergedByTheRule(piece, merges)) << piece;
    }
  }
}

// Characters of three bytes out of few bytes, and bytes that are no character.
std::string RandomCharacters(std::mt19937& random) {
  std::string text;
  for (auto n = random() % 20; n > 0; --n) {
    text += "\xE4\xE5"[random() % 2];
    for (int trail = 0; trail < 2; ++trail) text += "\x80\x81\x82"[random() % 3];
    if (random() % 16 == 0) text += "z\x80\xE4"[random() % 3];
  }
  return text;
}

// Some tokens end inside of characters.
TEST(MatchEncoder, EncodesCharactersOfThreeBytesLikeTheStatedRule) {
  std::mt19937 random(43);
  for (int round = 0; round < 150; ++round) {
    const std::vector<Merge> merges = RandomOrderedMerges(random, "\xE4\xE5\x80\x81\x82z", 8 + random() % 60);
    const auto encoder = MatchEncoder::Build(ByteTokens(), merges);
    ASSERT_TRUE(encoder.has_value());
    for (int repeat = 0; repeat < 12; ++repeat) {
      const std::string piece = RandomCharacters(random);
      ASSERT_EQ(Encoded(*encoder, piece), MergedByTheRule(piece, merges));
    }
  }
}

TEST(MatchEncoder, AppendsAndFindsTheHighestIds) {
  constexpr TokenId kTop = (1 << 20) - 1;
  std::array<TokenId, 256> bytes = ByteTokens();
  bytes['x'] = kTop;
  const auto encoder = MatchEncoder::Build(bytes, std::vector<Merge>{{kTop, 'y', 300}});
  ASSERT_TRUE(encoder.has_value());
  MatchEncoder::Scratch scratch;
  std::vector<TokenId> ids = {99};
  encoder->Encode("xyxx", scratch, ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{99, 300, kTop, kTop}));
}

TEST(MatchEncoder, TakesOnlyMergesInTheOrderOfTheirMaking) {
  const auto takes = [](const std::vector<Merge>& merges) {
    return MatchEncoder::Build(ByteTokens(), merges).has_value();
  };
  EXPECT_TRUE(takes({}));
  EXPECT_TRUE(takes({{'a', 'b', 256}, {256, 'c', 257}}));
  EXPECT_FALSE(takes({{256, 'c', 257}, {'a', 'b', 256}}));                   // before its half
  EXPECT_FALSE(takes({{'a', 'b', 256}, {'a', 300, 257}}));                   // of a half that nothing makes
  EXPECT_FALSE(takes({{'a', 'a', 256}, {'a', 256, 257}, {256, 'a', 257}}));  // the same twice
}

TEST(MatchEncoder, DoesNotTakeTokensTooLongForItsMemory) {
  std::vector<Merge> merges = {{'a', 'a', 256}};
  while (merges.size() < 64) {
    const TokenId last = merges.back().result;
    merges.push_back({.left = last, .right = last, .result = last + 1});
  }
  EXPECT_FALSE(MatchEncoder::Build(ByteTokens(), merges).has_value());
  merges.resize(8);
  const auto encoder = MatchEncoder::Build(ByteTokens(), merges);
  ASSERT_TRUE(encoder.has_value());
  EXPECT_EQ(Encoded(*encoder, std::string(256 + 128 + 1, 'a')), (std::vector<TokenId>{263, 262, 'a'}));
}

}  // namespace
}  // namespace millrace::text
