#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/planned_memory.h"

namespace millrace::rig {

// What a plan has to fit into.
struct MemoryBudget {
  uint64_t bytes = 0;
  std::string origin;  // "--ram", "MemAvailable of /proc/meminfo", ...
  // Nobody asked for this limit, the machine has it: mapped weights beyond it are read from the drive again
  // and again, which is slow, but no reason not to start.
  bool of_machine = false;
};

// Every long-lived or context-dependent byte of a process by name, before any of it is taken.
class MemoryPlan {
 public:
  MemoryPlan() = default;
  explicit MemoryPlan(std::vector<PlannedMemory> lines) : lines_(std::move(lines)) {}

  const std::vector<PlannedMemory>& lines() const { return lines_; }
  // Of the line `name`; 0 when there is none.
  uint64_t BytesOf(std::string_view name) const;
  uint64_t total_bytes() const { return mapped_bytes() + own_bytes(); }
  uint64_t mapped_bytes() const { return Sum(true); }
  // What is not mapped weights: memory that only this process can give back.
  uint64_t own_bytes() const { return Sum(false); }

  // Bytes that count against `budget`, and whether they fit.
  uint64_t Needed(const MemoryBudget& budget) const {
    return budget.of_machine ? own_bytes() : total_bytes();
  }
  bool Fits(const MemoryBudget& budget) const { return Needed(budget) <= budget.bytes; }

 private:
  uint64_t Sum(bool mapped) const;

  std::vector<PlannedMemory> lines_;
};

// The plan as a table: name, bytes, what the bytes depend on; the sums. Ends with a newline.
std::string PlanTable(const MemoryPlan& plan);

}  // namespace millrace::rig
