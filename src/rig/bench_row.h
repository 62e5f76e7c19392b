#pragma once

#include <optional>
#include <string>

#include "rig/time_in_turn.h"

namespace millrace::rig {

// One measured figure beside its limit, which was measured in turn with it.
struct BenchRow {
  std::string name = "";             // of the case: "fp8 mat-vec"
  std::string shape = "";            // what was computed: "5120 -> 2304, 12 matrices a loop"
  std::string numerics = "";         // "reference", "fast"; empty where there is no choice
  std::string instruction_set = "";  // "AVX3"
  int threads = 0;

  double tokens_per_s = 0;  // where whole tokens are computed
  double value = 0;
  std::string unit = "";  // of value and limit: "GB/s", "GFLOP/s", "tokens/s", "x"
  double limit = 0;
  std::string limit_name = "";  // "read bandwidth"
  double ratio = 0;             // value / limit

  // See Contest; the spread is that of the value.
  double spread = 0;
  int rounds = 0, clean = 0;
  bool by_processor_time = false;

  // Why there are no figures, if there are none.
  std::optional<std::string> skipped = std::nullopt;

  // Takes value (that of contestant `value_of`) and limit from a contest, in units of `unit_size`.
  void Take(const Contest& contest, double unit_size, size_t value_of = 0, size_t limit_of = 1) {
    value = contest.rates[value_of] / unit_size;
    limit = contest.rates[limit_of] / unit_size;
    ratio = contest.Ratio(value_of, limit_of);
    spread = contest.spreads[value_of];
    rounds = contest.rounds;
    clean = contest.clean;
    by_processor_time = contest.by_processor_time;
  }
};

}  // namespace millrace::rig
