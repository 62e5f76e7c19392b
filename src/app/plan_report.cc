#include "app/plan_report.h"

#include <fmt/format.h>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "base/units.h"

namespace millrace::app {

namespace json = boost::json;

namespace {

json::array LinesJson(const std::vector<PlannedMemory>& lines) {
  json::array array;
  for (const PlannedMemory& line : lines) {
    array.push_back({{"name", line.name},
                     {"bytes", line.bytes},
                     {"mapped", line.mapped},
                     {"grows_with", line.depends_on}});
  }
  return array;
}

json::value VerdictJson(const rig::PlanVerdict& verdict) {
  json::object object;
  object["fits"] = verdict.fits;
  object["needed_bytes"] = verdict.needed_bytes;
  object["budget"] = {{"bytes", verdict.budget.bytes},
                      {"origin", verdict.budget.origin},
                      {"of_machine", verdict.budget.of_machine}};
  object["headroom_bytes"] =
      static_cast<int64_t>(verdict.budget.bytes) - static_cast<int64_t>(verdict.needed_bytes);
  json::array next;
  for (const rig::PlanVerdict::Next& step : verdict.next) {
    next.push_back({{"flag", step.flag},
                    {"unit", step.unit},
                    {"step", step.step},
                    {"bytes", step.bytes},
                    {"at_most", step.at_most},
                    {"fits", step.fits}});
  }
  object["next"] = std::move(next);
  const rig::PlanVerdict::Next* const binding = verdict.binding();
  object["binds"] = binding == nullptr ? json::value(nullptr) : json::value(binding->flag);
  object["remedy"] = verdict.remedy
                         ? json::value{{"flag", verdict.remedy->flag}, {"value", verdict.remedy->value}}
                         : json::value(nullptr);
  return object;
}

std::string SignedBytes(int64_t bytes) {
  return bytes < 0 ? "-" + HumanBytes(static_cast<uint64_t>(-bytes))
                   : HumanBytes(static_cast<uint64_t>(bytes));
}

// A row of the cards' table: a name and a cell a card.
template <typename Cell>
std::string Row(std::string_view name, const rig::CardRigPlan& plan, Cell cell) {
  std::string row = fmt::format("{:<26}", name);
  for (const rig::CardPlan& card : plan.cards) row += fmt::format(" {:>12}", cell(card));
  return row + '\n';
}

}  // namespace

std::string ServingPlanJson(const ServingPlan& plan) {
  json::object object;
  object["lines"] = LinesJson(plan.memory.lines());
  object["mapped_bytes"] = plan.memory.mapped_bytes();
  object["own_bytes"] = plan.memory.own_bytes();
  object["total_bytes"] = plan.memory.total_bytes();
  json::object settings;
  for (const rig::PlanSetting& setting : plan.settings) settings[setting.flag.substr(2)] = setting.value;
  object["settings"] = std::move(settings);
  object["verdict"] = VerdictJson(plan.verdict);
  return json::serialize(object) + '\n';
}

std::string CardRigText(const rig::CardRigPlan& plan, int64_t session_tokens) {
  int number = 0;
  std::string text = Row("card", plan, [&](const rig::CardPlan&) { return number++; });
  text += Row("capacity", plan, [](const rig::CardPlan& card) { return HumanBytes(card.capacity_bytes); });
  text += Row("experts of each layer", plan, [](const rig::CardPlan& card) { return card.n_experts; });
  text += Row("first of them", plan, [](const rig::CardPlan& card) { return card.first_expert; });
  for (size_t i = 0; i < plan.cards.front().lines.size(); ++i) {
    text += Row(plan.cards.front().lines[i].name, plan,
                [i](const rig::CardPlan& card) { return HumanBytes(card.lines[i].bytes); });
  }
  text +=
      Row("weights in all", plan, [](const rig::CardPlan& card) { return HumanBytes(card.weight_bytes()); });
  text +=
      Row("planned in all", plan, [](const rig::CardPlan& card) { return HumanBytes(card.planned_bytes()); });
  text += Row("headroom for pages", plan,
              [](const rig::CardPlan& card) { return SignedBytes(card.headroom_bytes()); });
  for (const PlannedMemory& line : plan.host)
    text += fmt::format("off the cards: {} {}\n", line.name, HumanBytes(line.bytes));
  text += fmt::format("tensor parallel {}, expert parallel {}; one expert of every layer: {}\n", plan.tp,
                      plan.ep, HumanBytes(plan.expert_bytes));
  text += fmt::format("a session of {} tokens: {} of pages on every card\n",
                      WithThousands(static_cast<uint64_t>(session_tokens)), HumanBytes(plan.session_bytes));
  const int64_t headroom = plan.headroom_bytes();
  if (headroom < 0)
    return text + fmt::format("does not fit: the fullest card lacks {}\n", SignedBytes(-headroom));
  return text + fmt::format("pool: {} tokens, {} sessions of {} tokens\n",
                            WithThousands(static_cast<uint64_t>(plan.pool_tokens)), plan.sessions,
                            WithThousands(static_cast<uint64_t>(session_tokens)));
}

std::string CardRigJson(const rig::CardRigPlan& plan, int64_t session_tokens) {
  json::object object;
  object["tensor_parallel"] = plan.tp;
  object["expert_parallel"] = plan.ep;
  json::array cards;
  for (const rig::CardPlan& card : plan.cards) {
    cards.push_back({{"capacity_bytes", card.capacity_bytes},
                     {"first_expert", card.first_expert},
                     {"experts", card.n_experts},
                     {"lines", LinesJson(card.lines)},
                     {"weight_bytes", card.weight_bytes()},
                     {"planned_bytes", card.planned_bytes()},
                     {"headroom_bytes", card.headroom_bytes()}});
  }
  object["cards"] = std::move(cards);
  object["off_cards"] = LinesJson(plan.host);
  object["expert_bytes"] = plan.expert_bytes;
  object["fits"] = plan.headroom_bytes() >= 0 && plan.sessions > 0;
  object["pool_tokens"] = plan.pool_tokens;
  object["session_tokens"] = session_tokens;
  object["session_bytes"] = plan.session_bytes;
  object["sessions"] = plan.sessions;
  return json::serialize(object) + '\n';
}

}  // namespace millrace::app
