#include "rig/machine_memory.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "base/units.h"

namespace millrace::rig {
namespace {

namespace fs = std::filesystem;

// The kernel keeps some pages free for itself and stalls whoever comes near them.
constexpr uint64_t kKernelShare = 50;  // a fiftieth of the memory
constexpr uint64_t kGranularity = 64 * kMiB;

// "Name: 12 kB" or "name 12" lines.
std::map<std::string, uint64_t> ReadTable(const fs::path& path, uint64_t unit) {
  std::map<std::string, uint64_t> table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    if (!(words >> name >> value)) continue;
    if (name.ends_with(':')) name.pop_back();
    table[name] = value * unit;
  }
  return table;
}

// A file of one number; nothing for "max" and for no file.
std::optional<uint64_t> ReadNumber(const fs::path& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

uint64_t Less(uint64_t from, uint64_t what) {
  return from > what ? from - what : 0;
}

Result<MemoryBudget> OfMachine(const fs::path& root) {
  auto info = ReadTable(root / "proc/meminfo", kKiB);
  if (info["MemTotal"] == 0) {
    return Error(ErrorCode::kUnavailable,
                 fmt::format("{} cannot be read, so what memory there is is not known; give --ram",
                             (root / "proc/meminfo").string()));
  }
  const uint64_t free = info["MemFree"] + info["Buffers"] + info["Cached"] + info["SReclaimable"];
  return MemoryBudget{Less(free, info["Shmem"] + info["MemTotal"] / kKernelShare),
                      "what is available of this machine's memory", true};
}

// Paths of the process's control groups, "memory" ones of version 1 and the one of version 2.
std::optional<fs::path> ControlGroup(const fs::path& root) {
  std::ifstream groups(root / "proc/self/cgroup");
  std::optional<fs::path> found;
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(std::min(second + 2, line.size()));
    if (controllers.empty()) found = root / "sys/fs/cgroup" / path;
    if ((',' + controllers + ',').find(",memory,") != std::string::npos)
      return root / "sys/fs/cgroup/memory" / path;
  }
  return found;
}

// What the kernel holds for a group of version 2 and cannot take back.
uint64_t KernelMemory(std::map<std::string, uint64_t>& held) {
  if (held.contains("kernel")) return Less(held["kernel"], held["slab_reclaimable"]);
  // Before Linux 5.18 there is no sum.
  return held["kernel_stack"] + held["pagetables"] + held["percpu"] + held["sock"] +
         held["slab_unreclaimable"];
}

// Of one group: its limit less what it holds beside the cache of files.
std::optional<uint64_t> LeftOf(const fs::path& group) {
  std::optional<uint64_t> limit = ReadNumber(group / "memory.max");
  const bool version_2 = limit.has_value();
  if (!limit) limit = ReadNumber(group / "memory.limit_in_bytes");
  if (!limit) return std::nullopt;
  auto held = ReadTable(group / "memory.stat", 1);
  const uint64_t own =
      version_2 ? held["anon"] + held["shmem"] + KernelMemory(held) : held["total_rss"] + held["total_shmem"];
  return Less(*limit, own);
}

}  // namespace

Result<MemoryBudget> ReadMachineMemory(const fs::path& root) {
  MILLRACE_ASSIGN_OR_RETURN(MemoryBudget budget, OfMachine(root));
  const std::optional<fs::path> own_group = ControlGroup(root);
  // A limit of any group above counts too; a container may show its own group as the top.
  const fs::path top = root / "sys/fs/cgroup";
  for (fs::path group = own_group.value_or(top);; group = group.parent_path()) {
    const std::optional<uint64_t> left = LeftOf(group);
    if (left && *left < budget.bytes) {
      budget.bytes = *left;
      budget.origin = "what the control group's limit leaves";
    }
    if (group == top || group == group.parent_path()) break;
  }
  budget.bytes = budget.bytes / kGranularity * kGranularity;
  return budget;
}

}  // namespace millrace::rig
