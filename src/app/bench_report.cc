#include "app/bench_report.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/units.h"

namespace millrace::app {
namespace {

namespace json = boost::json;

std::string RoundsText(int clean, int rounds, bool by_processor_time) {
  return fmt::format("{} of {} rounds clean{}", clean, rounds,
                     by_processor_time ? ", by processor time" : "");
}

json::object RowJson(const rig::BenchRow& row) {
  json::object object{{"name", row.name}, {"shape", row.shape}};
  if (!row.numerics.empty()) object["numerics"] = row.numerics;
  object["instruction_set"] = row.instruction_set;
  object["threads"] = row.threads;
  object["limit_name"] = row.limit_name;
  if (row.skipped) {
    object["skipped"] = *row.skipped;
    return object;
  }
  if (row.tokens_per_s > 0) object["tokens_s"] = row.tokens_per_s;
  object["value"] = row.value;
  object["unit"] = row.unit;
  object["limit"] = row.limit;
  object["ratio"] = row.ratio;
  object["spread"] = row.spread;
  object["rounds"] = row.rounds;
  object["clean_rounds"] = row.clean;
  object["by_processor_time"] = row.by_processor_time;
  return object;
}

}  // namespace

std::string LimitsText(const rig::MachineDescription& machine, const rig::MachineLimits& limits) {
  return fmt::format(
      "machine  {}, {} processors, last-level cache {}, huge pages: {}\n"
      "limits, {} threads  read {:.1f} GB/s, float32 multiply-add {:.0f} GFLOP/s, int8 dot {:.0f} Gop/s "
      "({}); "
      "{}\n",
      machine.processor, machine.processors,
      machine.last_level_cache_bytes == 0 ? "of unknown size"
                                          : HumanBytes(static_cast<uint64_t>(machine.last_level_cache_bytes)),
      machine.huge_pages, limits.threads, limits.read_bytes_s * 1e-9, limits.float_ops_s * 1e-9,
      limits.int8_ops_s * 1e-9, limits.int8_sequence,
      RoundsText(limits.contest.clean, limits.contest.rounds, limits.contest.by_processor_time));
}

std::string RowHeadText() {
  return fmt::format("{:<16} {:<46} {:<9} {:<8} {:>7} {:>18} {:>6}   {}\n", "case", "shape", "numerics",
                     "set", "threads", "value", "ratio", "of its limit; clean rounds");
}

std::string RowText(const rig::BenchRow& row) {
  const std::string head = fmt::format("{:<16} {:<46} {:<9} {:<8} {:>7}", row.name, row.shape, row.numerics,
                                       row.instruction_set, row.threads);
  if (row.skipped) return fmt::format("{} skipped: {}\n", head, *row.skipped);
  const std::string value = fmt::format("{:.4g} {}", row.value, row.unit);
  const std::string tokens = row.tokens_per_s > 0 ? fmt::format(", {:.4g} tokens/s", row.tokens_per_s) : "";
  return fmt::format("{} {:>18} {:>6.3f}   {}, {:.4g}{}; {}, spread {:.1f} %\n", head, value, row.ratio,
                     row.limit_name, row.limit, tokens,
                     RoundsText(row.clean, row.rounds, row.by_processor_time), 100 * row.spread);
}

json::object BenchJson(const rig::MachineDescription& machine, const rig::MachineLimits& limits,
                       std::span<const rig::BenchRow> rows) {
  json::object object;
  object["machine"] = json::object{{"processor", machine.processor},
                                   {"processors", machine.processors},
                                   {"last_level_cache_bytes", machine.last_level_cache_bytes},
                                   {"huge_pages", machine.huge_pages}};
  object["limits"] = json::object{{"threads", limits.threads},
                                  {"read_gb_s", limits.read_bytes_s * 1e-9},
                                  {"float32_gflop_s", limits.float_ops_s * 1e-9},
                                  {"int8_gop_s", limits.int8_ops_s * 1e-9},
                                  {"int8_sequence", limits.int8_sequence},
                                  {"rounds", limits.contest.rounds},
                                  {"clean_rounds", limits.contest.clean},
                                  {"by_processor_time", limits.contest.by_processor_time}};
  json::array& array = object["rows"].emplace_array();
  for (const rig::BenchRow& row : rows) array.push_back(RowJson(row));
  return object;
}

}  // namespace millrace::app
