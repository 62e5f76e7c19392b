#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace millrace::text {
namespace {

TEST(StopMatcher, HoldsBackWhatMayBeginAStopString) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.Push("the E"), "the ");
  EXPECT_EQ(matcher.Push("N"), "");
  EXPECT_EQ(matcher.Push("T"), "ENT");
  EXPECT_EQ(matcher.Push(" EN"), " ");
  EXPECT_EQ(matcher.Push("D and more"), "");
  EXPECT_EQ(matcher.hit(), 0u);
  EXPECT_EQ(matcher.Push("never"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, TheEndOfTheStreamReleasesWhatIsHeld) {
  StopMatcher matcher({"\n\n", "STOP"});
  EXPECT_EQ(matcher.Push("text\n"), "text");
  EXPECT_EQ(matcher.Flush(), "\n");
  EXPECT_EQ(matcher.hit(), std::nullopt);
  EXPECT_EQ(matcher.Push("\n"), "");  // as new: the earlier newline does not count
  EXPECT_EQ(matcher.hit(), std::nullopt);
}

TEST(StopMatcher, AFailedMatchMayContainTheStartOfAnother) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.Push("aaa"), "a");
  EXPECT_EQ(matcher.Push("b"), "");
  EXPECT_EQ(matcher.hit(), 0u);
}

TEST(StopMatcher, TheFirstCompleteStopStringWins) {
  StopMatcher first({"abcd", "bc"});
  EXPECT_EQ(first.Push("xabcd"), "xa");
  EXPECT_EQ(first.hit(), 1u);
  StopMatcher together({"c", "abc", "bc"});  // all end at one place: the longest begins first
  EXPECT_EQ(together.Push("xabc"), "x");
  EXPECT_EQ(together.hit(), 1u);
}

TEST(StopMatcher, EmptyStopStringsNeverMatch) {
  StopMatcher matcher({"", "x"});
  EXPECT_EQ(matcher.Push("ab"), "ab");
  EXPECT_EQ(matcher.Push("x"), "");
  EXPECT_EQ(matcher.hit(), 1u);
  StopMatcher none({});
  EXPECT_EQ(none.Push("abc"), "abc");
}

struct Outcome {
  std::string text;
  std::optional<size_t> hit;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// The definition: the shortest prefix of the text that ends with a stop string.
Outcome Reference(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> hit;
    for (size_t i = 0; i < stops.size(); ++i) {
      const bool ends = !stops[i].empty() && std::string_view(text).substr(0, end).ends_with(stops[i]);
      if (ends && (!hit || stops[i].size() > stops[*hit].size())) hit = i;
    }
    if (hit) return {text.substr(0, end - stops[*hit].size()), hit};
  }
  return {text, std::nullopt};
}

TEST(StopMatcher, AnyWayOfCuttingGivesTheSameResult) {
  std::mt19937 random(11);
  const auto word = [&](size_t n) {
    std::string s;
    for (; n > 0; --n) s += static_cast<char>('a' + random() % 2);
    return s;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (auto n = random() % 4; n > 0; --n) stops.push_back(word(random() % 6));
    const std::string text = word(random() % 40);
    StopMatcher matcher(stops);
    Outcome outcome;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random() % 5;
      outcome.text += matcher.Push(std::string_view(text).substr(at, n));
      at += n;
    }
    outcome.text += matcher.Flush();
    outcome.hit = matcher.hit();
    ASSERT_EQ(outcome, Reference(text, stops)) << text;
  }
}

}  // namespace
}  // namespace millrace::text
