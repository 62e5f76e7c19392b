#pragma once

#include <cstdint>
#include <string>

#include "rig/huge_buffer.h"
#include "rig/team.h"
#include "rig/time_in_turn.h"

namespace millrace::rig {

// What the machine can do at most with a number of threads.
struct MachineLimits {
  int threads = 0;
  double read_bytes_s = 0;    // from memory
  double float_ops_s = 0;     // float32 multiply-adds, two operations each
  double int8_ops_s = 0;      // dot products of bytes, two operations a pair
  std::string int8_sequence;  // by which instructions
  Contest contest;            // the measurement
};

// What to print beside figures.
struct MachineDescription {
  std::string processor = "";          // "Intel(R) Xeon(R) Processor @ 2.80GHz"
  int processors = 0;                  // that this process may use
  int64_t last_level_cache_bytes = 0;  // 0: unknown
  std::string huge_pages = "";         // transparent huge pages: "always", "madvise", "never", "unknown"
};
MachineDescription DescribeMachine();

// The limits as contestants, to be timed in turn with what they limit. Owns the memory that is read.
class LimitLoops {
 public:
  LimitLoops();

  Contestant Read(Team& team, int pieces = 1);  // bytes; 64 MiB a piece
  Contestant Floats(Team& team);                // operations
  Contestant Int8(Team& team);                  // operations

  MachineLimits Measure(Team& team);

 private:
  HugeBuffer memory_;
  size_t next_ = 0;  // where the next run reads on
};

}  // namespace millrace::rig
