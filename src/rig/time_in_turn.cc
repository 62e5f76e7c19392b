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
  double rate_by_processor_time = 0;
  bool clean = true;
};

using Round = std::vector<Slice>;

void Prepare(const Contestant& contestant) {
  if (contestant.prepare) contestant.prepare();
}

double ProcessCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Slice TimeSlice(const Contestant& contestant, int runs) {
  Prepare(contestant);
  Team& team = *contestant.team;
  team.Wake();
  const CpuTimes before = team.CpuTimesNow();
  const double process_before = ProcessCpuSeconds();
  const double start = Now();
  for (int i = 0; i < runs; ++i) contestant.run();
  const double seconds = Now() - start;
  const double process_cpu_s = ProcessCpuSeconds() - process_before;
  const CpuTimes after = team.CpuTimesNow();
  double sum_cpu_s = 0;
  Slice slice{.rate = runs * contestant.work / seconds};
  for (size_t i = 0; i < before.size(); ++i) {
    const double cpu_s = after[i] - before[i];
    sum_cpu_s += cpu_s;
    slice.clean = slice.clean && cpu_s >= kCleanShare * seconds;
  }
  double mean_cpu_s = sum_cpu_s / static_cast<double>(before.size());
  if (contestant.foreign_threads > 0)
    mean_cpu_s = std::max(mean_cpu_s, process_cpu_s / (1 + contestant.foreign_threads));
  slice.rate_by_processor_time = runs * contestant.work / std::clamp(mean_cpu_s, 1e-9, seconds);
  return slice;
}

// Runs that fill a slice, after the first, which warms up.
int RunsFor(const Contestant& contestant, double slice_s) {
  Prepare(contestant);
  const double first = Now();
  contestant.run();
  if (Now() - first >= slice_s) return 1;
  for (int runs = 1;; runs *= 2) {
    const double start = Now();
    for (int i = 0; i < runs; ++i) contestant.run();
    const double seconds = Now() - start;
    if (seconds >= slice_s / 2) return std::max(1, static_cast<int>(std::lround(runs * slice_s / seconds)));
  }
}

double Quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

std::vector<Round> RunRounds(std::span<const Contestant> contestants, const TurnPlan& plan,
                             Contest& contest) {
  std::vector<int> runs;
  for (const Contestant& contestant : contestants) runs.push_back(RunsFor(contestant, plan.slice_s));
  std::vector<Round> rounds;
  const double start = Now();
  while (contest.clean < plan.rounds && contest.rounds < plan.max_rounds) {
    if (contest.rounds >= kLeastRounds && Now() - start > plan.max_s) break;
    Round round;
    for (size_t c = 0; c < contestants.size(); ++c) round.push_back(TimeSlice(contestants[c], runs[c]));
    ++contest.rounds;
    contest.clean += std::ranges::all_of(round, &Slice::clean);
    rounds.push_back(std::move(round));
  }
  return rounds;
}

}  // namespace

Contest TimeInTurn(std::span<const Contestant> contestants, const TurnPlan& plan) {
  Contest contest;
  std::vector<Round> rounds = RunRounds(contestants, plan, contest);
  const int enough = std::min(kLeastRounds, plan.rounds);
  contest.by_processor_time = contest.clean < enough && !plan.waits;
  if (contest.clean >= enough)
    std::erase_if(rounds, [](const Round& round) { return !std::ranges::all_of(round, &Slice::clean); });
  for (size_t c = 0; c < contestants.size(); ++c) {
    std::vector<double> rates;
    for (const Round& round : rounds)
      rates.push_back(contest.by_processor_time ? round[c].rate_by_processor_time : round[c].rate);
    std::ranges::sort(rates);
    const double median = Quantile(rates, 0.5);
    contest.rates.push_back(median);
    contest.spreads.push_back((Quantile(rates, 0.75) - Quantile(rates, 0.25)) / 2 / median);
  }
  return contest;
}

}  // namespace millrace::rig
