#include "rig/machine_limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>

#include "base/units.h"
#include "kernels/peak_loops.h"

namespace millrace::rig {
namespace {

// Ten times the caches of a large desktop processor; every piece reads on where the last one ended.
constexpr size_t kReadBytes = 512 * kMiB;
constexpr size_t kPieceBytes = 64 * kMiB;
constexpr size_t kBytesATask = 2 * kMiB;
constexpr int64_t kRoundsATask = 20000;

// Keeps what was read alive.
std::atomic<uint64_t> sink{0};

std::string FirstLineWith(const std::string& file, const std::string& prefix) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(prefix)) return line;
  }
  return "";
}

int ProcessorsOfThisProcess() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

MachineDescription DescribeMachine() {
  MachineDescription machine;
  const std::string model = FirstLineWith("/proc/cpuinfo", "model name");
  const size_t colon = model.find(": ");
  machine.processor = colon == std::string::npos ? "unknown processor" : model.substr(colon + 2);
  machine.processors = ProcessorsOfThisProcess();
  machine.last_level_cache_bytes = std::max<int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
  const std::string pages = FirstLineWith("/sys/kernel/mm/transparent_hugepage/enabled", "");
  const size_t open = pages.find('[');
  const size_t close = pages.find(']');
  const bool found = open != std::string::npos && close != std::string::npos && open < close;
  machine.huge_pages = found ? pages.substr(open + 1, close - open - 1) : "unknown";
  return machine;
}

LimitLoops::LimitLoops() : memory_(kReadBytes) {
  std::memset(memory_.data(), 1, memory_.size());
}

Contestant LimitLoops::Read(Team& team, int pieces) {
  const auto run = [this, &team, pieces] {
    for (int piece = 0; piece < pieces; ++piece) {
      const std::byte* begin = memory_.data() + next_;
      next_ = (next_ + kPieceBytes) % kReadBytes;
      team.pool().ParallelFor(kPieceBytes / kBytesATask, [&](size_t task, int) {
        sink.fetch_xor(kernels::StreamRead(begin + task * kBytesATask, kBytesATask),
                       std::memory_order_relaxed);
      });
    }
  };
  return {.run = run, .work = static_cast<double>(pieces) * kPieceBytes, .team = &team};
}

Contestant LimitLoops::Floats(Team& team) {
  const auto run = [&team] {
    team.pool().ParallelFor(static_cast<size_t>(4 * team.size()),
                            [&](size_t, int) { kernels::FloatPeakLoop(kRoundsATask); });
  };
  return {.run = run, .work = 4.0 * team.size() * kernels::FloatPeakLoop(kRoundsATask), .team = &team};
}

Contestant LimitLoops::Int8(Team& team) {
  const auto run = [&team] {
    team.pool().ParallelFor(static_cast<size_t>(4 * team.size()),
                            [&](size_t, int) { kernels::Int8PeakLoop(kRoundsATask); });
  };
  return {.run = run, .work = 4.0 * team.size() * kernels::Int8PeakLoop(kRoundsATask), .team = &team};
}

MachineLimits LimitLoops::Measure(Team& team) {
  const Contestant contestants[] = {Read(team), Floats(team), Int8(team)};
  const Contest contest = TimeInTurn(contestants);
  return {.threads = team.size(),
          .read_bytes_s = contest.rates[0],
          .float_ops_s = contest.rates[1],
          .int8_ops_s = contest.rates[2],
          .int8_sequence = kernels::Int8PeakSequence(),
          .contest = contest};
}

}  // namespace millrace::rig
