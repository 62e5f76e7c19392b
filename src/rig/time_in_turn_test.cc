#include "rig/time_in_turn.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace millrace::rig {
namespace {

void Sleep(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

TEST(TimeInTurn, ContestantsTakeTurnsInEveryRound) {
  Team team(2);
  std::string calls;
  const Contestant contestants[] = {
      {.run = [&] { calls += 'a', Sleep(2); }, .work = 1, .team = &team},
      {.run = [&] { calls += 'b', Sleep(2); }, .work = 1, .team = &team},
  };
  const Contest contest = TimeInTurn(contestants, {.slice_s = 0.002, .rounds = 3, .max_rounds = 6});
  EXPECT_TRUE(calls.ends_with("abab")) << calls;
  EXPECT_EQ(contest.rates.size(), 2u);
}

// A thread that sleeps, like one whose processor is taken away, has no processor time to show.
TEST(TimeInTurn, RoundsWithoutProcessorTimeAreNotClean) {
  Team team(1);
  const Contestant contestants[] = {{.run = [] { Sleep(5); }, .work = 10, .team = &team}};
  TurnPlan plan{.slice_s = 0.005, .rounds = 3, .max_rounds = 7};
  Contest contest = TimeInTurn(contestants, plan);
  EXPECT_EQ(contest.clean, 0);
  EXPECT_EQ(contest.rounds, 7);
  // 10 units in 5 ms by the clock, but in far less of a processor's time.
  EXPECT_TRUE(contest.by_processor_time);
  EXPECT_GT(contest.rates[0], 4000);
  plan.waits = true;
  contest = TimeInTurn(contestants, plan);
  EXPECT_FALSE(contest.by_processor_time);
  EXPECT_LE(contest.rates[0], 2001);
}

TEST(TimeInTurn, PreparesEachSliceOutsideTheClock) {
  Team team(1);
  int prepared = 0;
  int runs = 0;
  const Contestant contestants[] = {
      {.run = [&] { ++runs; }, .work = 1, .team = &team, .prepare = [&] { ++prepared, Sleep(3); }}};
  const Contest contest =
      TimeInTurn(contestants, {.slice_s = 0, .rounds = 5, .max_rounds = 5, .waits = true});
  EXPECT_GE(contest.rounds, 5);
  EXPECT_EQ(prepared, contest.rounds + 1);
  EXPECT_EQ(runs, contest.rounds + 1);
  EXPECT_GT(contest.rates[0], 1000);
}

TEST(TimeInTurn, RatesAreWorkOverTime) {
  Team team(1);
  const Contestant contestants[] = {
      {.run = [] { Sleep(10); }, .work = 1000, .team = &team},
      {.run = [] { Sleep(10); }, .work = 1, .team = &team},
  };
  const Contest contest =
      TimeInTurn(contestants, {.slice_s = 0.01, .rounds = 5, .max_rounds = 5, .waits = true});
  EXPECT_GT(contest.Ratio(0, 1), 100);
  EXPECT_LT(contest.Ratio(0, 1), 10000);
}

}  // namespace
}  // namespace millrace::rig
