#include "loadgen/soak_report.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/units.h"
#include "loadgen/load_report.h"

namespace millrace::loadgen {

namespace json = boost::json;

namespace {

std::string LoadText(const ServerLoad& load) {
  const auto count = [](const std::optional<double>& n) {
    return n ? fmt::format("{:.0f}", *n) : std::string("an unknown number");
  };
  return fmt::format("{} running, {} waiting", count(load.running), count(load.waiting));
}

std::string MemoryText(const ServerLoad& before, const ServerLoad& after) {
  std::string text;
  for (const auto& [account, bytes] : after.live_bytes) {
    const auto known = before.live_bytes.find(account);
    const double then = known == before.live_bytes.end() ? 0 : known->second;
    const double change = bytes - then;
    text += fmt::format("{:<32} {:>14} {:>14} {:>14}\n", account, HumanBytes(static_cast<uint64_t>(then)),
                        HumanBytes(static_cast<uint64_t>(bytes)),
                        change == 0 ? "flat" : fmt::format("{}{:.0f} B", change > 0 ? "+" : "", change));
  }
  if (text.empty()) return text;
  return fmt::format("{:<32} {:>14} {:>14} {:>14}\n", "live memory by account", "before", "after", "change") +
         text;
}

json::object LoadJson(const ServerLoad& load) {
  json::object object;
  if (load.running) object["running"] = *load.running;
  if (load.waiting) object["waiting"] = *load.waiting;
  json::object& accounts = object["live_bytes"].emplace_object();
  for (const auto& [account, bytes] : load.live_bytes) accounts[account] = bytes;
  return object;
}

}  // namespace

std::string Text(const SoakResult& result) {
  std::string text = result.interrupted ? "interrupted: only what was finished by then\n" : "";
  text += SummaryText(result.summary, result.duration_s);
  text += fmt::format("{:<18} {} tasks, {} tool outputs, {} compactions, {} sub-agents\n", "agents",
                      result.tasks, result.tool_outputs, result.compactions, result.subagents);
  for (const auto& [change, reuse] : result.reuse)
    text += fmt::format("prompts {}\n", change) + ReuseText(reuse);
  text += fmt::format("{:<18} {} pairs of answers to one prompt compared, {} differ\n", "one answer",
                      result.compared, result.mismatches);
  for (const Mismatch& mismatch : result.examples)
    text += fmt::format("  {}: '{}' and '{}'\n", mismatch.when, mismatch.first, mismatch.second);
  text += fmt::format("{:<18} {}\n", "at the end",
                      result.after ? LoadText(*result.after) : "the server has no /metrics");
  if (result.before && result.after) text += MemoryText(*result.before, *result.after);
  for (const std::string& fault : result.Faults()) text += "FAULT: " + fault + "\n";
  return text;
}

json::object Json(const SoakResult& result) {
  json::object object = SummaryJson(result.summary, result.duration_s);
  object["interrupted"] = result.interrupted;
  object["unreachable"] = !result.unreachable.empty();
  object["tasks"] = result.tasks;
  object["tool_outputs"] = result.tool_outputs;
  object["compactions"] = result.compactions;
  object["subagents"] = result.subagents;
  json::object& reuse = object["reuse"].emplace_object();
  for (const auto& [change, meter] : result.reuse) reuse[change] = ReuseJson(meter);
  object["answers_compared"] = result.compared;
  object["answers_differing"] = result.mismatches;
  json::array& examples = object["differences"].emplace_array();
  for (const Mismatch& mismatch : result.examples)
    examples.push_back({{"when", mismatch.when}, {"first", mismatch.first}, {"second", mismatch.second}});
  if (result.before) object["server_before"] = LoadJson(*result.before);
  if (result.after) object["server_after"] = LoadJson(*result.after);
  json::array& faults = object["faults"].emplace_array();
  for (const std::string& fault : result.Faults()) faults.emplace_back(fault);
  return object;
}

}  // namespace millrace::loadgen
