#pragma once

#include <string>

#include "app/card_serving.h"
#include "app/serving_plan.h"

namespace millrace::app {

// One JSON object: lines, sums, budget, settings, the verdict.
std::string ServingPlanJson(const ServingPlan& plan);

// A column a card: experts, bytes by name, headroom; then what stays off the cards, the sizes and the
// sessions that fit, or which card lacks how much, for what, and the remedy. Ends with a newline.
std::string CardServingText(const CardServingPlan& plan);
std::string CardServingJson(const CardServingPlan& plan);

}  // namespace millrace::app
