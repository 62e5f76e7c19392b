#pragma once

#include <functional>
#include <span>
#include <vector>

#include "rig/team.h"

namespace millrace::rig {

// Something to be timed against others.
struct Contestant {
  std::function<void()> run;
  double work = 0;       // units that one run does
  Team* team = nullptr;  // whose threads do it
  // Threads of a library, out of the team's sight, that work beside the calling one; 0 if there are none.
  int foreign_threads = 0;
  std::function<void()> prepare = {};  // before each slice, outside the clock
};

struct TurnPlan {
  double slice_s = 0.02;  // least time of a slice; 0: one run. A single run may take longer.
  int rounds = 15;        // clean rounds wanted
  int max_rounds = 45;
  double max_s = 10;   // after which no round is begun, once there are five
  bool waits = false;  // the contestants wait for files: processor time says nothing
};

// What a contest showed, the contestants in the order they were given in.
struct Contest {
  std::vector<double> rates;    // units a second: the median over the counted rounds
  std::vector<double> spreads;  // half the range of the middle half of the rounds, over the median
  int rounds = 0;
  int clean = 0;
  bool by_processor_time = false;

  double Ratio(size_t a, size_t b) const { return rates[a] / rates[b]; }
};

// Times the contestants in turn, a short slice each, round after round: what the machine's other users do to
// it falls on all alike. A round is clean when every thread had at least 97 % of every slice as processor
// time. The medians are over the clean rounds; if there are fewer than five (or than asked for), over all
// rounds and by processor time, the mean of the threads', instead of by the clock: threads take tasks as they
// can, so this leaves out what others took of the processors, if not what sharing caches and memory cost.
//
// Each contestant runs once before the clock starts.
Contest TimeInTurn(std::span<const Contestant> contestants, const TurnPlan& plan = {});

}  // namespace millrace::rig
