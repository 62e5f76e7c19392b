#include "rig/memory_plan.h"

#include <fmt/format.h>

#include "base/units.h"

namespace millrace::rig {
namespace {

std::string Row(std::string_view name, uint64_t bytes, std::string_view depends_on) {
  std::string row =
      fmt::format("{:<28} {:>12} {:>19}  {}", name, HumanBytes(bytes), WithThousands(bytes), depends_on);
  row.erase(row.find_last_not_of(' ') + 1);
  return row + '\n';
}

}  // namespace

uint64_t MemoryPlan::Sum(bool mapped) const {
  uint64_t sum = 0;
  for (const PlannedMemory& line : lines_)
    if (line.mapped == mapped) sum += line.bytes;
  return sum;
}

uint64_t MemoryPlan::BytesOf(std::string_view name) const {
  for (const PlannedMemory& line : lines_)
    if (line.name == name) return line.bytes;
  return 0;
}

std::string PlanTable(const MemoryPlan& plan) {
  std::string table = fmt::format("{:<28} {:>12} {:>19}  {}\n", "memory", "planned", "bytes", "grows with");
  for (const PlannedMemory& line : plan.lines()) table += Row(line.name, line.bytes, line.depends_on);
  table += Row("mapped weights", plan.mapped_bytes(), "");
  table += Row("the process's own", plan.own_bytes(), "");
  table += Row("total", plan.total_bytes(), "");
  return table;
}

}  // namespace millrace::rig
