#include "app/card_serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/units.h"
#include "model/layer_plan.h"
#include "model/sequence_state.h"

namespace millrace::app {
namespace {

constexpr size_t kMostCards = 64;  // that a remedy asks for

rig::MemoryBudget BudgetOf(const rig::CardRigPlan& weights) {
  return {.bytes = static_cast<uint64_t>(std::max<int64_t>(0, weights.headroom_bytes())),
          .origin = "what the weights leave of the fullest card",
          .of_machine = true};  // no --ram would help
}

// What fits beside the weights on `cards`; nothing when they cannot be divided so, or nothing fits.
std::optional<ServingPlan> TryCards(const formats::ModelConfig& config, const ServingOptions& options,
                                    const AutomaticSizes& automatic, const rig::CardRigOptions& cards) {
  const Result<rig::CardRigPlan> weights = rig::PlanCardRig(config, cards);
  if (!weights.ok() || weights->headroom_bytes() < 0) return std::nullopt;
  Result<ServingPlan> plan = PlanServing(config, options, automatic, BudgetOf(*weights), PlanScope::kCard);
  if (!plan.ok() || !plan->verdict.fits) return std::nullopt;
  return *std::move(plan);
}

// The one change of the rig that makes it fit: what may be left out, then more cards like the smallest, then
// larger ones. All routed experts take `experts_bytes`; the fullest card lacks `lacking_bytes`.
std::string RemedyOfRig(const formats::ModelConfig& config, const ServingOptions& options,
                        const AutomaticSizes& automatic, const rig::CardRigOptions& cards,
                        uint64_t experts_bytes, uint64_t lacking_bytes) {
  const auto with_sizes = [](const std::string& change, const ServingPlan& plan) {
    return fmt::format("{} (then {})", change, SettingsText(plan.settings));
  };
  rig::CardRigOptions tried = cards;
  tried.vision = false;
  if (const auto plan = TryCards(config, options, automatic, tried))
    return with_sizes("--language-model-only", *plan);
  tried = cards;
  tried.draft = false;
  if (const auto plan = TryCards(config, options, automatic, tried)) return with_sizes("--dspark off", *plan);
  tried = cards;
  tried.engram = rig::EngramPlacement::kHost;
  if (const auto plan = TryCards(config, options, automatic, tried))
    return with_sizes("--engram host", *plan);
  tried = cards;
  const uint64_t smallest = std::ranges::min(cards.device_bytes);
  while (tried.device_bytes.size() < kMostCards) {
    tried.device_bytes.push_back(smallest);
    const uint64_t all = std::accumulate(tried.device_bytes.begin(), tried.device_bytes.end(), uint64_t{0});
    if (all < experts_bytes) continue;
    const auto plan = TryCards(config, options, automatic, tried);
    if (!plan) continue;
    const size_t more = tried.device_bytes.size() - cards.device_bytes.size();
    return with_sizes(fmt::format("{} more card{} of {}", more, more == 1 ? "" : "s", HumanBytes(smallest)),
                      *plan);
  }
  return fmt::format("{} more on every card", HumanBytes(lacking_bytes));
}

// The most sessions of the length decided that fit on cards with `budget` beside their weights.
Result<int64_t> MostSessions(const formats::ModelConfig& config, const ServingPlan& decided,
                             const rig::MemoryBudget& budget, int64_t pages_of_session,
                             std::optional<int64_t> pool_pages) {
  MILLRACE_ASSIGN_OR_RETURN(
      const ServingPlan most,
      PlanServing(config, decided.options, {.max_num_seqs = true}, budget, PlanScope::kCard));
  if (!most.verdict.fits) return 0;
  const int64_t sequences = most.options.load.stepper.max_num_seqs;
  // A pool whose size is given holds no more than fit into it.
  return pool_pages ? std::min(sequences, *pool_pages / pages_of_session) : sequences;
}

}  // namespace

Result<CardServingPlan> PlanCards(const formats::ModelConfig& config, const ServingOptions& options,
                                  const AutomaticSizes& automatic, const rig::CardRigOptions& cards) {
  CardServingPlan plan;
  MILLRACE_ASSIGN_OR_RETURN(plan.rig, rig::PlanCardRig(config, cards));
  const rig::MemoryBudget budget = BudgetOf(plan.rig);
  MILLRACE_ASSIGN_OR_RETURN(plan.serving, PlanServing(config, options, automatic, budget, PlanScope::kCard));
  MILLRACE_ASSIGN_OR_RETURN(const model::LayerPlan layers, model::LayerPlan::Build(config));
  const engine::StepperOptions& stepper = plan.serving.options.load.stepper;
  const auto pages_for = [&](int64_t tokens) {
    return (tokens + stepper.page_tokens - 1) / stepper.page_tokens;
  };
  plan.session_tokens = *stepper.max_model_len;
  const int64_t pages = pages_for(plan.session_tokens);
  plan.session_bytes =
      static_cast<uint64_t>(pages) * model::PageLayout(layers, stepper.page_tokens).page_bytes;
  std::optional<int64_t> pool_pages;  // that are asked for
  if (stepper.kv_tokens) pool_pages = pages_for(*stepper.kv_tokens);
  plan.pool_tokens = pool_pages.value_or(pages * stepper.max_num_seqs) * stepper.page_tokens;
  if (plan.rig.headroom_bytes() >= 0) {
    MILLRACE_ASSIGN_OR_RETURN(plan.sessions, MostSessions(config, plan.serving, budget, pages, pool_pages));
  }
  plan.process = PlanProcess(config, plan.serving.options);
  plan.rig.HoldOnEachCard(plan.serving.memory.lines());
  if (!plan.fits()) {
    const std::optional<rig::PlanVerdict::Remedy>& setting = plan.serving.verdict.remedy;
    plan.remedy = setting
                      ? fmt::format("{} {}", setting->flag, setting->value)
                      : RemedyOfRig(config, options, automatic, cards,
                                    plan.rig.expert_bytes * static_cast<uint64_t>(config.n_routed_experts),
                                    static_cast<uint64_t>(-plan.rig.headroom_bytes()));
  }
  return plan;
}

}  // namespace millrace::app
