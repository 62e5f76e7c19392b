#include "engine/repetition_guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

namespace millrace::engine {
namespace {

// How many tokens the guard takes before it reports; nullopt when it never does.
std::optional<size_t> TokensUntilReport(const std::vector<TokenId>& tokens, int64_t limit) {
  RepetitionGuard guard(limit);
  for (size_t t = 0; t < tokens.size(); ++t) {
    guard.OnToken(tokens[t]);
    if (guard.repeats()) return t + 1;
  }
  return std::nullopt;
}

// What the header promises, the long way: after the first `n` tokens.
bool Repeats(const std::vector<TokenId>& tokens, size_t n, int64_t limit) {
  if (static_cast<int64_t>(n) < limit) return false;
  const auto* const end = tokens.data() + n;
  for (int64_t period = 1; period <= kMaxPhraseTokens; ++period) {
    if (std::equal(end - limit + period, end, end - limit)) return true;
  }
  return false;
}

std::vector<TokenId> Cycle(size_t period, size_t n_tokens) {
  std::vector<TokenId> tokens;
  for (size_t t = 0; t < n_tokens; ++t) tokens.push_back(static_cast<TokenId>(t % period));
  return tokens;
}

TEST(RepetitionGuard, ReportsTheTokenThatFillsTheLimitForEveryPeriod) {
  for (const size_t period : {1u, 2u, 3u, 32u, 127u, 255u, 256u}) {
    EXPECT_EQ(TokensUntilReport(Cycle(period, 5000), 4096), 4096u) << period;
  }
  EXPECT_EQ(TokensUntilReport(Cycle(256, 5000), kMinRepetitionLimitTokens), 1024u);
  EXPECT_EQ(TokensUntilReport(Cycle(257, 20000), kMinRepetitionLimitTokens), std::nullopt);
}

TEST(RepetitionGuard, CountsOnlyTheRepetitionAtTheEnd) {
  std::vector<TokenId> tokens(100);
  for (size_t t = 0; t < tokens.size(); ++t) tokens[t] = static_cast<TokenId>(1000 + t);
  const std::vector<TokenId> cycle = Cycle(10, 2000);
  tokens.insert(tokens.end(), cycle.begin(), cycle.end());
  EXPECT_EQ(TokensUntilReport(tokens, 1024), 1124u);
}

TEST(RepetitionGuard, OneOtherTokenStartsTheCountAgain) {
  std::vector<TokenId> tokens = Cycle(10, 3000);
  tokens[1023] = 777;
  EXPECT_EQ(TokensUntilReport(tokens, 1024), 1024u + 1024u);
}

TEST(RepetitionGuard, EqualsThePlainDefinition) {
  std::mt19937 rng(3);
  int reports = 0;
  for (int round = 0; round < 12; ++round) {
    const int64_t limit = kMinRepetitionLimitTokens + static_cast<int64_t>(rng() % 100);
    // Few symbols, mostly copies of what stood a period before: repetition begins, breaks and changes its
    // period all the time.
    std::vector<TokenId> tokens;
    size_t period = 1;
    for (int t = 0; t < 4000; ++t) {
      if (rng() % 1500 == 0) period = 1 + rng() % (round % 2 == 0 ? 20 : 300);
      const bool copy = tokens.size() >= period && rng() % 1000 != 0;
      tokens.push_back(copy ? tokens[tokens.size() - period] : static_cast<TokenId>(rng() % 3));
    }
    RepetitionGuard guard(limit);
    for (size_t t = 0; t < tokens.size(); ++t) {
      guard.OnToken(tokens[t]);
      ASSERT_EQ(guard.repeats(), Repeats(tokens, t + 1, limit)) << "limit " << limit << ", token " << t;
      reports += guard.repeats();
    }
  }
  EXPECT_GT(reports, 1000);
  EXPECT_LT(reports, 40000);
}

// What a long answer may well contain, at the default limit.
TEST(RepetitionGuard, LetsRepetitiveTextPass) {
  const int64_t limit = 4096;
  // A table of 2,000 rows that differ in their number alone.
  std::vector<TokenId> table;
  for (TokenId row = 0; row < 2000; ++row) {
    for (const TokenId token : {7, 8, 1000 + row / 100, 1000 + row % 100, 9, 10, 11, 9, 12})
      table.push_back(token);
  }
  EXPECT_EQ(TokensUntilReport(table, limit), std::nullopt);
  // Code: runs of up to 3,000 spaces between lines.
  std::vector<TokenId> spaces;
  for (int line = 0; line < 20; ++line) {
    spaces.insert(spaces.end(), 3000, 5);
    spaces.push_back(100 + line);
  }
  EXPECT_EQ(TokensUntilReport(spaces, limit), std::nullopt);
  // A 40 x 40 matrix of zeros, "0, " and line ends: 3,280 tokens of one phrase, then prose.
  std::vector<TokenId> matrix;
  for (int row = 0; row < 40; ++row) {
    for (int column = 0; column < 40; ++column) matrix.insert(matrix.end(), {20, 21});
    matrix.insert(matrix.end(), {22, 23});
  }
  for (TokenId t = 0; t < 500; ++t) matrix.push_back(500 + t);
  EXPECT_EQ(TokensUntilReport(matrix, limit), std::nullopt);
}

TEST(RepetitionGuard, OffIsOff) {
  EXPECT_EQ(TokensUntilReport(std::vector<TokenId>(100000, 5), 0), std::nullopt);
}

TEST(RepetitionGuard, StartForgetsTheSequenceBefore) {
  RepetitionGuard guard(1024);
  for (int t = 0; t < 1024; ++t) guard.OnToken(5);
  EXPECT_TRUE(guard.repeats());
  guard.Start();
  EXPECT_FALSE(guard.repeats());
  for (int t = 0; t < 1023; ++t) guard.OnToken(5);
  EXPECT_FALSE(guard.repeats());
  guard.OnToken(5);
  EXPECT_TRUE(guard.repeats());
}

}  // namespace
}  // namespace millrace::engine
