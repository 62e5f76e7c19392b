#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/serving_plan.h"
#include "base/result.h"
#include "formats/hf_config.h"
#include "rig/card_rig.h"

namespace millrace::app {

// Serving on a rig of cards, on paper.
struct CardServingPlan {
  // Every line of every card, pages and states included.
  rig::CardRigPlan rig;
  // The sizes decided; its lines are what each card holds beside weights and reserve, and its verdict is held
  // against what the weights leave of the fullest card.
  ServingPlan serving;
  std::vector<PlannedMemory> process;  // of the process, on its host: no card holds it

  int64_t session_tokens = 0;  // --max-model-len
  uint64_t session_bytes = 0;  // pages of one session of that length, on every card
  // The largest number of such sessions whose plan fits: pages, states and tails of so many, not of
  // --max-num-seqs, beside the scratch of their steps.
  int64_t sessions = 0;
  int64_t pool_tokens = 0;  // of the pool that is planned

  // When it does not fit, the one change that alone would make it, as one would type or say it; else empty.
  std::string remedy;

  bool fits() const { return rig.headroom_bytes() >= 0; }
};

// Divides the weights, then sizes what is automatic by what they leave of the fullest card. Errors are
// kInvalidArgument and name the flag that is out of range or does not divide the model.
Result<CardServingPlan> PlanCards(const formats::ModelConfig& config, const ServingOptions& options,
                                  const AutomaticSizes& automatic, const rig::CardRigOptions& cards);

}  // namespace millrace::app
