#include "app/plan_report.h"

#include <fmt/format.h>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

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

json::object SettingsJson(const std::vector<rig::PlanSetting>& settings) {
  json::object object;
  for (const rig::PlanSetting& setting : settings) object[setting.flag.substr(2)] = setting.value;
  return object;
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

std::string CardTable(const rig::CardRigPlan& plan) {
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
  return text +
         Row("headroom", plan, [](const rig::CardPlan& card) { return SignedBytes(card.headroom_bytes()); });
}

std::string OffCardsRow(const PlannedMemory& line) {
  return fmt::format("off the cards: {:<26} {:>12}\n", line.name, HumanBytes(line.bytes));
}

std::string SessionsText(const CardServingPlan& plan) {
  const std::string length = WithThousands(static_cast<uint64_t>(plan.session_tokens));
  std::string text = fmt::format("fits: card {} has the least headroom, {}\n", plan.rig.fullest(),
                                 HumanBytes(static_cast<uint64_t>(plan.rig.headroom_bytes())));
  text +=
      fmt::format("pool: {} tokens on every card\n", WithThousands(static_cast<uint64_t>(plan.pool_tokens)));
  text += fmt::format("a session of {} tokens: {} of pages on every card", length,
                      HumanBytes(plan.session_bytes));
  for (const rig::PlanVerdict::Next& next : plan.serving.verdict.next) {
    if (next.flag == "--max-num-seqs" && !next.at_most)
      text += fmt::format("; the next one, with its state and tails: {}", HumanBytes(next.bytes));
  }
  return text + fmt::format("\nsessions of {} tokens that fit: {}\n", length, plan.sessions);
}

// The fullest card's largest terms, and what would fit.
std::string ShortfallText(const CardServingPlan& plan) {
  constexpr size_t kTerms = 4;
  const size_t fullest = plan.rig.fullest();
  const rig::CardPlan& card = plan.rig.cards[fullest];
  std::vector<PlannedMemory> lines = card.lines;
  std::ranges::stable_sort(lines, std::greater(), &PlannedMemory::bytes);
  lines.resize(std::min(lines.size(), kTerms));
  const auto lacking = static_cast<uint64_t>(-card.headroom_bytes());
  std::string text =
      fmt::format("does not fit: card {} lacks {} ({} bytes): it needs {} of its {}, the most for ", fullest,
                  HumanBytes(lacking), WithThousands(lacking), HumanBytes(card.planned_bytes()),
                  HumanBytes(card.capacity_bytes));
  for (const PlannedMemory& line : lines)
    text += fmt::format("{}{} ({})", &line == &lines.front() ? "" : ", ", line.name, HumanBytes(line.bytes));
  const auto n_lacking =
      std::ranges::count_if(plan.rig.cards, [](const auto& other) { return other.headroom_bytes() < 0; });
  text += fmt::format("; {} of {} cards lack memory\n", n_lacking, plan.rig.cards.size());
  return text + fmt::format("what would fit: {}\n", plan.remedy);
}

}  // namespace

std::string ServingPlanJson(const ServingPlan& plan) {
  json::object object;
  object["lines"] = LinesJson(plan.memory.lines());
  object["mapped_bytes"] = plan.memory.mapped_bytes();
  object["own_bytes"] = plan.memory.own_bytes();
  object["total_bytes"] = plan.memory.total_bytes();
  object["settings"] = SettingsJson(plan.settings);
  object["verdict"] = VerdictJson(plan.verdict);
  return json::serialize(object) + '\n';
}

std::string CardServingText(const CardServingPlan& plan) {
  std::string text = CardTable(plan.rig);
  for (const PlannedMemory& line : plan.rig.host) text += OffCardsRow(line);
  for (const PlannedMemory& line : plan.process) text += OffCardsRow(line);
  text += fmt::format("tensor parallel {}, expert parallel {}; one expert of every layer: {}\n", plan.rig.tp,
                      plan.rig.ep, HumanBytes(plan.rig.expert_bytes));
  text += SettingsText(plan.serving.settings) + '\n';
  return text + (plan.fits() ? SessionsText(plan) : ShortfallText(plan));
}

std::string CardServingJson(const CardServingPlan& plan) {
  json::object object;
  object["tensor_parallel"] = plan.rig.tp;
  object["expert_parallel"] = plan.rig.ep;
  json::array cards;
  for (const rig::CardPlan& card : plan.rig.cards) {
    cards.push_back({{"capacity_bytes", card.capacity_bytes},
                     {"first_expert", card.first_expert},
                     {"experts", card.n_experts},
                     {"lines", LinesJson(card.lines)},
                     {"weight_bytes", card.weight_bytes()},
                     {"planned_bytes", card.planned_bytes()},
                     {"headroom_bytes", card.headroom_bytes()}});
  }
  object["cards"] = std::move(cards);
  json::array off_cards = LinesJson(plan.rig.host);
  for (json::value& line : LinesJson(plan.process)) off_cards.push_back(std::move(line));
  object["off_cards"] = std::move(off_cards);
  object["expert_bytes"] = plan.rig.expert_bytes;
  object["settings"] = SettingsJson(plan.serving.settings);
  object["fits"] = plan.fits();
  object["fullest_card"] = plan.rig.fullest();
  object["pool_tokens"] = plan.pool_tokens;
  object["session_tokens"] = plan.session_tokens;
  object["session_bytes"] = plan.session_bytes;
  object["sessions"] = plan.sessions;
  object["remedy"] = plan.remedy.empty() ? json::value(nullptr) : json::value(plan.remedy);
  return json::serialize(object) + '\n';
}

}  // namespace millrace::app
