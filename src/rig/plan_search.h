#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "rig/memory_plan.h"

namespace millrace::rig {

// A setting that memory grows with.
struct PlanSetting {
  std::string flag;  // "--max-model-len"
  std::string unit;  // "tokens"
  int64_t value = 0;
  int64_t least = 1;
  int64_t most = 1;
  int64_t step = 1;  // in which it is worth changing; values that are found are multiples, or `most`
};

// The plan for values of the settings, in their order. No line shrinks when a value grows.
using PlanFunction = std::function<Result<MemoryPlan>(std::span<const int64_t> values)>;

// The largest value of settings[i], the others as they stand, whose plan fits; nothing when not even the
// least does. Errors are those of `plan`.
Result<std::optional<int64_t>> LargestThatFits(const PlanFunction& plan,
                                               std::span<const PlanSetting> settings, size_t i,
                                               const MemoryBudget& budget);

// Gives the settings `automatic` (indices, the most important first) the largest values that fit, one after
// the other with the later ones at their least. A budget of the machine is first held against the whole plan,
// weights included, and only where those alone are too much against the process's own memory. Where nothing
// fits the settings are left at their least. Returns the plan.
Result<MemoryPlan> SizeToFit(const PlanFunction& plan, std::vector<PlanSetting>& settings,
                             std::span<const size_t> automatic, const MemoryBudget& budget);

// How a plan stands against its budget.
struct PlanVerdict {
  // A setting's next step.
  struct Next {
    std::string flag;
    std::string unit;
    int64_t step = 0;
    uint64_t bytes = 0;    // that it would add
    bool at_most = false;  // there is no next step: the setting is as large as it can be
    bool fits = false;
  };
  // The one change that makes the plan fit.
  struct Remedy {
    std::string flag;
    std::string value;
  };

  bool fits = false;
  uint64_t needed_bytes = 0;
  MemoryBudget budget;
  uint64_t mapped_bytes = 0;
  std::vector<Next> next;        // of every setting, in order
  std::optional<Remedy> remedy;  // when it does not fit; nothing where a budget of the machine is too small

  // The first setting whose next step does not fit.
  const Next* binding() const;
};

Result<PlanVerdict> Judge(const PlanFunction& plan, std::span<const PlanSetting> settings,
                          const MemoryBudget& budget);

// Some lines on headroom, what binds and what the next step of each setting would cost; when it does not fit,
// the shortfall and the remedy. Ends with a newline.
std::string VerdictText(const PlanVerdict& verdict);

}  // namespace millrace::rig
