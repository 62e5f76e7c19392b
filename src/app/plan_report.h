#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/serving_plan.h"
#include "rig/card_rig.h"

namespace millrace::app {

// One JSON object: lines, sums, budget, settings, the verdict.
std::string ServingPlanJson(const ServingPlan& plan);

// A column a card: experts, bytes by name, headroom; then pool, sessions and what stays off the cards. Ends
// with a newline.
std::string CardRigText(const rig::CardRigPlan& plan, int64_t session_tokens);
std::string CardRigJson(const rig::CardRigPlan& plan, int64_t session_tokens);

}  // namespace millrace::app
