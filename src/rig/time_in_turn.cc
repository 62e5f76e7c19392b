#include "rig/time_in_turn.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace millrace::rig {
namespace {

constexpr double kCleanShare = 0.97;
constexpr int kLeastRounds = 5;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Slice {
  double rate = 0;
  double share = 0;  // of the time as processor time, of the thread that had least
};

Slice TimeSlice(const Contestant& contestant, int runs) {
  Team& team = *contestant.team;
  team.Wake();
  const CpuTimes before = team.CpuTimesNow();
  const double start = Now();
  for (int i = 0; i < runs; ++i) contestant.run();
  const double seconds = Now() - start;
  const CpuTimes after = team.CpuTimesNow();
  Slice slice{.rate = runs * contestant.work / seconds, .share = 1};
  for (size_t i = 0; i < before.size(); ++i)
    slice.share = std::min(slice.share, (after[i] - before[i]) / seconds);
  return slice;
}

// Runs that fill a slice.
int RunsFor(const Contestant& contestant, double slice_s) {
  contestant.run();
  int runs = 1;
  while (true) {
    const double start = Now();
    for (int i = 0; i < runs; ++i) contestant.run();
    const double seconds = Now() - start;
    if (seconds >= slice_s / 2) return std::max(1, static_cast<int>(std::lround(runs * slice_s / seconds)));
    runs *= 2;
  }
}

struct Round {
  std::vector<double> rates;
  double share = 1;
};

double Quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

}  // namespace

Contest TimeInTurn(std::span<const Contestant> contestants, const TurnPlan& plan) {
  std::vector<int> runs;
  for (const Contestant& contestant : contestants) runs.push_back(RunsFor(contestant, plan.slice_s));
  Contest contest;
  std::vector<Round> rounds;
  while (contest.clean < plan.rounds && contest.rounds < plan.max_rounds) {
    Round round;
    for (size_t c = 0; c < contestants.size(); ++c) {
      const Slice slice = TimeSlice(contestants[c], runs[c]);
      round.rates.push_back(slice.rate);
      round.share = std::min(round.share, slice.share);
    }
    ++contest.rounds;
    contest.clean += round.share >= kCleanShare;
    rounds.push_back(std::move(round));
  }
  std::ranges::stable_sort(rounds, std::greater<>(), &Round::share);
  const size_t counted = std::min(rounds.size(), static_cast<size_t>(std::max(contest.clean, kLeastRounds)));
  for (size_t c = 0; c < contestants.size(); ++c) {
    std::vector<double> rates;
    for (size_t r = 0; r < counted; ++r) rates.push_back(rounds[r].rates[c]);
    std::ranges::sort(rates);
    const double median = Quantile(rates, 0.5);
    contest.rates.push_back(median);
    contest.spreads.push_back((Quantile(rates, 0.75) - Quantile(rates, 0.25)) / 2 / median);
  }
  return contest;
}

}  // namespace millrace::rig
