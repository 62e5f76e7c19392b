#pragma once

#include <optional>
#include <string>

namespace millrace::rig {

// One measured figure beside its limit, which was measured in turn with it.
struct BenchRow {
  std::string name = "";             // of the case: "fp8 mat-vec"
  std::string shape = "";            // what was computed: "5120 -> 2304, 12 matrices a loop"
  std::string numerics = "";         // "reference", "fast"; empty where there is no choice
  std::string instruction_set = "";  // "AVX3"
  int threads = 0;

  double value = 0;
  std::string unit = "";  // of value and limit: "GB/s", "GFLOP/s", "tokens/s", "x"
  double limit = 0;
  std::string limit_name = "";  // "read bandwidth"
  double ratio = 0;             // value / limit

  double spread = 0;  // of the value: half the range of the middle half of the rounds, over the median
  int rounds = 0, clean = 0;  // see TimeInTurn

  // Why there are no figures, if there are none.
  std::optional<std::string> skipped = std::nullopt;
};

}  // namespace millrace::rig
