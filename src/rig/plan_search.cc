#include "rig/plan_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace millrace::rig {
namespace {

std::vector<int64_t> ValuesOf(std::span<const PlanSetting> settings) {
  std::vector<int64_t> values;
  for (const PlanSetting& setting : settings) values.push_back(setting.value);
  return values;
}

std::string Count(int64_t n, const std::string& unit) {
  // Units are plurals: "sequences".
  return fmt::format("{} {}", WithThousands(static_cast<uint64_t>(n)),
                     n == 1 ? unit.substr(0, unit.size() - 1) : unit);
}

// The setting that keeps most of its value when it alone is lowered.
Result<std::optional<PlanVerdict::Remedy>> FindRemedy(const PlanFunction& plan,
                                                      std::span<const PlanSetting> settings,
                                                      const MemoryPlan& planned, const MemoryBudget& budget) {
  std::optional<PlanVerdict::Remedy> remedy;
  double most_kept = 0;
  for (size_t i = 0; i < settings.size(); ++i) {
    std::vector<PlanSetting> lowered(settings.begin(), settings.end());
    lowered[i].most = settings[i].value;
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> value, LargestThatFits(plan, lowered, i, budget));
    if (!value) continue;
    const double kept = static_cast<double>(*value) / static_cast<double>(settings[i].value);
    if (kept > most_kept) {
      most_kept = kept;
      remedy = {settings[i].flag, std::to_string(*value)};
    }
  }
  if (remedy || budget.of_machine) return remedy;
  const uint64_t mib = RoundUp(planned.Needed(budget), kMiB) / kMiB;
  return std::optional(PlanVerdict::Remedy{"--ram", fmt::format("{}MiB", mib)});
}

std::string NextText(const PlanVerdict::Next& next) {
  if (next.at_most) return fmt::format("{} is at its most\n", next.flag);
  return fmt::format("the next {} of {} would need {}{}\n", Count(next.step, next.unit), next.flag,
                     HumanBytes(next.bytes), next.fits ? "" : ": too much");
}

}  // namespace

Result<std::optional<int64_t>> LargestThatFits(const PlanFunction& plan,
                                               std::span<const PlanSetting> settings, size_t i,
                                               const MemoryBudget& budget) {
  const PlanSetting& setting = settings[i];
  std::vector<int64_t> values = ValuesOf(settings);
  const auto fits = [&](int64_t value) -> Result<bool> {
    values[i] = value;
    MILLRACE_ASSIGN_OR_RETURN(const MemoryPlan planned, plan(values));
    return planned.Fits(budget);
  };
  MILLRACE_ASSIGN_OR_RETURN(const bool most_fits, fits(setting.most));
  if (most_fits) return std::optional(setting.most);
  MILLRACE_ASSIGN_OR_RETURN(const bool least_fits, fits(setting.least));
  if (!least_fits) return std::optional<int64_t>();
  // In steps: `low` fits, `high` does not; 0 stands for the least.
  int64_t low = setting.least / setting.step;
  int64_t high = setting.most / setting.step + 1;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    MILLRACE_ASSIGN_OR_RETURN(const bool middle_fits, fits(std::min(middle * setting.step, setting.most)));
    (middle_fits ? low : high) = middle;
  }
  return std::optional(std::max(low * setting.step, setting.least));
}

Result<MemoryPlan> SizeToFit(const PlanFunction& plan, std::vector<PlanSetting>& settings,
                             std::span<const size_t> automatic, const MemoryBudget& budget) {
  for (const size_t i : automatic) settings[i].value = settings[i].least;
  MILLRACE_ASSIGN_OR_RETURN(const MemoryPlan smallest, plan(ValuesOf(settings)));
  MemoryBudget target = budget;
  if (smallest.total_bytes() <= budget.bytes) target.of_machine = false;
  for (const size_t i : automatic) {
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<int64_t> value, LargestThatFits(plan, settings, i, target));
    if (value) settings[i].value = *value;
  }
  return plan(ValuesOf(settings));
}

const PlanVerdict::Next* PlanVerdict::binding() const {
  const auto found = std::ranges::find_if(next, [](const Next& step) { return !step.at_most && !step.fits; });
  return found == next.end() ? nullptr : &*found;
}

Result<PlanVerdict> Judge(const PlanFunction& plan, std::span<const PlanSetting> settings,
                          const MemoryBudget& budget) {
  std::vector<int64_t> values = ValuesOf(settings);
  MILLRACE_ASSIGN_OR_RETURN(const MemoryPlan planned, plan(values));
  PlanVerdict verdict{.fits = planned.Fits(budget),
                      .needed_bytes = planned.Needed(budget),
                      .budget = budget,
                      .mapped_bytes = planned.mapped_bytes(),
                      .next = {},
                      .remedy = std::nullopt};
  // What weights leave is all that a machine's memory is good for, as long as they leave anything.
  const bool whole = planned.total_bytes() <= budget.bytes;
  for (size_t i = 0; i < settings.size(); ++i) {
    const PlanSetting& setting = settings[i];
    PlanVerdict::Next next{.flag = setting.flag, .unit = setting.unit};
    next.at_most = setting.value >= setting.most;
    if (!next.at_most) {
      values[i] = std::min(setting.value / setting.step * setting.step + setting.step, setting.most);
      next.step = values[i] - setting.value;
      MILLRACE_ASSIGN_OR_RETURN(const MemoryPlan grown, plan(values));
      next.bytes = grown.total_bytes() - planned.total_bytes();
      next.fits = whole ? grown.total_bytes() <= budget.bytes : grown.Fits(budget);
      values[i] = setting.value;
    }
    verdict.next.push_back(std::move(next));
  }
  if (!verdict.fits) {
    MILLRACE_ASSIGN_OR_RETURN(verdict.remedy, FindRemedy(plan, settings, planned, budget));
  }
  return verdict;
}

std::string VerdictText(const PlanVerdict& verdict) {
  const MemoryBudget& budget = verdict.budget;
  if (!verdict.fits) {
    std::string text = fmt::format(
        "does not fit: the plan needs {}, {} ({} bytes) more than the budget of {} ({})\n",
        HumanBytes(verdict.needed_bytes), HumanBytes(verdict.needed_bytes - budget.bytes),
        WithThousands(verdict.needed_bytes - budget.bytes), HumanBytes(budget.bytes), budget.origin);
    text += verdict.remedy
                ? fmt::format("what would fit: {} {}\n", verdict.remedy->flag, verdict.remedy->value)
                : "no one setting makes it fit: this machine has too little memory\n";
    return text;
  }
  std::string text = fmt::format("fits: budget {} ({}), headroom {}\n", HumanBytes(budget.bytes),
                                 budget.origin, HumanBytes(budget.bytes - verdict.needed_bytes));
  const uint64_t left = budget.bytes - verdict.needed_bytes;
  if (budget.of_machine && verdict.mapped_bytes > left) {
    text += fmt::format(
        "weights do not fit beside it: of {} mapped, {} will be read from the drive again and again\n",
        HumanBytes(verdict.mapped_bytes), HumanBytes(verdict.mapped_bytes - left));
  }
  const PlanVerdict::Next* const binding = verdict.binding();
  text += binding == nullptr ? std::string("no setting binds\n") : fmt::format("{} binds\n", binding->flag);
  for (const PlanVerdict::Next& next : verdict.next) text += NextText(next);
  return text;
}

}  // namespace millrace::rig
