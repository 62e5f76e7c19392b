#include "loadgen/load_report.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

#include "base/units.h"

namespace millrace::loadgen {

namespace json = boost::json;

namespace {

std::string Line(std::string_view label, std::string_view value) {
  return fmt::format("{:<18} {}\n", label, value);
}

std::string Thousands(int64_t n) {
  return WithThousands(static_cast<uint64_t>(n));
}

double PerSecond(double n, double seconds) {
  return seconds > 0 ? n / seconds : 0;
}

std::string LatencyHead() {
  return fmt::format("{:<18} {:>10} {:>10} {:>10} {:>10} {:>10} {:>9}\n", "latency, ms", "p50", "p90", "p99",
                     "max", "mean", "count");
}

std::string LatencyRow(std::string_view label, const Samples& samples) {
  if (samples.count() == 0) return fmt::format("{:<18} {:>10}\n", label, "-");
  return fmt::format("{:<18} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>9}\n", label,
                     1e3 * samples.Quantile(0.5), 1e3 * samples.Quantile(0.9), 1e3 * samples.Quantile(0.99),
                     1e3 * samples.Max(), 1e3 * samples.Mean(), samples.count());
}

// "mean_ttft_ms" and so on, as vLLM names them.
void AddLatency(json::object& object, std::string_view name, const Samples& samples) {
  if (samples.count() == 0) return;
  object[fmt::format("mean_{}_ms", name)] = 1e3 * samples.Mean();
  object[fmt::format("median_{}_ms", name)] = 1e3 * samples.Quantile(0.5);
  object[fmt::format("p90_{}_ms", name)] = 1e3 * samples.Quantile(0.9);
  object[fmt::format("p99_{}_ms", name)] = 1e3 * samples.Quantile(0.99);
  object[fmt::format("max_{}_ms", name)] = 1e3 * samples.Max();
}

std::string FailureLines(const Summary& summary) {
  std::string text;
  for (const auto& [name, failure] : summary.failures)
    text += Line("  failed", fmt::format("{} x {}: {}", failure.count, name, failure.example));
  for (const auto& [name, count] : summary.refusals)
    text += Line("  tried again", fmt::format("{} x {}", count, name));
  return text;
}

std::string InterruptedLine(bool interrupted) {
  return interrupted ? "interrupted: only what was finished by then\n" : "";
}

}  // namespace

std::string SummaryText(const Summary& summary, double duration_s) {
  std::string requests =
      fmt::format("{} of {} succeeded, {} failed", summary.succeeded, summary.requests, summary.failed());
  if (summary.left > 0) requests += fmt::format(", {} disconnected on purpose", summary.left);
  std::string prompt = Thousands(summary.prompt_tokens);
  prompt += summary.tells_cached_tokens ? fmt::format(", {} of them cached", Thousands(summary.cached_tokens))
                                        : ", cached ones not told by the server";
  std::string generated = Thousands(summary.completion_tokens);
  if (duration_s > 0) {
    requests += fmt::format(" in {:.2f} s, {:.2f} requests/s", duration_s,
                            PerSecond(static_cast<double>(summary.succeeded), duration_s));
    prompt += fmt::format(
        "; {:.1f} tok/s computed",
        PerSecond(static_cast<double>(summary.prompt_tokens - summary.cached_tokens), duration_s));
    generated +=
        fmt::format("; {:.1f} tok/s", PerSecond(static_cast<double>(summary.completion_tokens), duration_s));
  }
  std::string text = Line("requests", requests) + FailureLines(summary) + Line("prompt tokens", prompt) +
                     Line("generated tokens", generated);
  if (summary.without_usage > 0) {
    text += Line("", fmt::format("{} answers came without usage: their events count as tokens, their prompts "
                                 "not at all",
                                 summary.without_usage));
  }
  if (summary.slowest_tok_s)
    text += Line("slowest stream", fmt::format("{:.2f} tok/s", *summary.slowest_tok_s));
  return text + LatencyHead() + LatencyRow("TTFT", summary.ttft_s) +
         LatencyRow("inter-token gap", summary.gap_s) + LatencyRow("TPOT", summary.tpot_s) +
         LatencyRow("end to end", summary.e2e_s);
}

json::object SummaryJson(const Summary& summary, double duration_s) {
  json::object object{{"requests", summary.requests},
                      {"completed", summary.succeeded},
                      {"failed", summary.failed()},
                      {"disconnected", summary.left},
                      {"total_input_tokens", summary.prompt_tokens},
                      {"total_output_tokens", summary.completion_tokens}};
  if (summary.tells_cached_tokens) object["total_cached_tokens"] = summary.cached_tokens;
  if (summary.without_usage > 0) object["answers_without_usage"] = summary.without_usage;
  json::object& failures = object["failures"].emplace_object();
  for (const auto& [name, failure] : summary.failures)
    failures[name] = {{"count", failure.count}, {"example", failure.example}};
  json::object& refusals = object["retried"].emplace_object();
  for (const auto& [name, count] : summary.refusals) refusals[name] = count;
  if (duration_s > 0) {
    object["duration"] = duration_s;
    object["request_throughput"] = PerSecond(static_cast<double>(summary.succeeded), duration_s);
    object["output_throughput"] = PerSecond(static_cast<double>(summary.completion_tokens), duration_s);
    object["prefill_throughput"] =
        PerSecond(static_cast<double>(summary.prompt_tokens - summary.cached_tokens), duration_s);
    object["total_token_throughput"] =
        PerSecond(static_cast<double>(summary.prompt_tokens + summary.completion_tokens), duration_s);
  }
  if (summary.slowest_tok_s) object["slowest_stream_tok_s"] = *summary.slowest_tok_s;
  AddLatency(object, "ttft", summary.ttft_s);
  AddLatency(object, "itl", summary.gap_s);
  AddLatency(object, "tpot", summary.tpot_s);
  AddLatency(object, "e2el", summary.e2e_s);
  return object;
}

std::string ReuseText(const ReuseMeter& reuse) {
  std::string text;
  if (reuse.first_turn_cached().count() > 0) {
    text += Line("shared prefix",
                 fmt::format("first turns found {:.0f} tokens cached in the middle, {:.0f} at most",
                             reuse.first_turn_cached().Quantile(0.5), reuse.first_turn_cached().Max()));
  }
  if (reuse.later_turns() == 0)
    return text + Line("reuse", "no later turn of which the server told cached tokens");
  text += Line("reuse",
               fmt::format("{:.1f} % of the previous prompts over {} later turns; the worst turn {:.1f} %",
                           100 * reuse.reuse(), reuse.later_turns(), 100 * reuse.reuse_by_turn().Min()));
  return text + Line("recomputed",
                     fmt::format("tokens of the previous prompt, by turn: p50 {:.0f}, p99 {:.0f}, max {:.0f}",
                                 reuse.recomputed_tokens().Quantile(0.5),
                                 reuse.recomputed_tokens().Quantile(0.99), reuse.recomputed_tokens().Max()));
}

json::object ReuseJson(const ReuseMeter& reuse) {
  json::object object{{"later_turns", reuse.later_turns()}};
  if (reuse.first_turn_cached().count() > 0) {
    object["first_turn_cached_tokens"] = {{"median", reuse.first_turn_cached().Quantile(0.5)},
                                          {"max", reuse.first_turn_cached().Max()}};
  }
  if (reuse.later_turns() == 0) return object;
  object["reuse_of_previous_prompt"] = reuse.reuse();
  object["worst_turn"] = reuse.reuse_by_turn().Min();
  object["recomputed_tokens"] = {{"median", reuse.recomputed_tokens().Quantile(0.5)},
                                 {"p99", reuse.recomputed_tokens().Quantile(0.99)},
                                 {"max", reuse.recomputed_tokens().Max()}};
  return object;
}

std::string Text(const RandomLoadResult& result) {
  std::string text = InterruptedLine(result.interrupted) + SummaryText(result.summary, result.duration_s);
  if (result.late_s.count() > 0) text += LatencyRow("sent late by", result.late_s);
  return text;
}

json::object Json(const RandomLoadResult& result) {
  json::object object = SummaryJson(result.summary, result.duration_s);
  object["interrupted"] = result.interrupted;
  AddLatency(object, "late", result.late_s);
  return object;
}

std::string Text(const ConversationsResult& result) {
  std::string text = InterruptedLine(result.interrupted) + SummaryText(result.summary, result.duration_s) +
                     ReuseText(result.reuse);
  if (result.broken > 0)
    text += Line("broken",
                 fmt::format("{} conversations ended early: a request of theirs failed", result.broken));
  return text;
}

json::object Json(const ConversationsResult& result) {
  json::object object = SummaryJson(result.summary, result.duration_s);
  object["interrupted"] = result.interrupted;
  object["broken_conversations"] = result.broken;
  object["reuse"] = ReuseJson(result.reuse);
  return object;
}

std::string Text(const FairnessResult& result) {
  std::string text = InterruptedLine(result.interrupted);
  for (const std::string& note : result.notes) text += "note: " + note + "\n";
  const bool has_rates = result.no_rates.empty();
  if (result.solo_tok_s > 0 && has_rates) {
    text += Line("one stream alone", fmt::format("{:.2f} tok/s, longest gap {:.1f} ms", result.solo_tok_s,
                                                 1e3 * result.solo_gap_s.Max()));
  }
  if (!result.streams.empty()) {
    text += fmt::format("{:<18} {:>14} {:>14} {:>14} {:>14} {:>16}\n", "decoding stream", "before, tok/s",
                        "during, tok/s", "of solo", "of before", "longest gap, ms");
  }
  for (size_t i = 0; i < result.streams.size(); ++i) {
    const StreamFairness& stream = result.streams[i];
    if (!has_rates) {
      text += fmt::format("{:<18} {:>14} {:>14} {:>14} {:>14} {:>16.1f}\n", i, "-", "-", "-", "-",
                          1e3 * stream.longest_gap_s);
      continue;
    }
    text +=
        fmt::format("{:<18} {:>14.2f} {:>14.2f} {:>12.1f} % {:>12.1f} % {:>16.1f}\n", i, stream.before_tok_s,
                    stream.during_tok_s, 100 * PerSecond(stream.during_tok_s, result.solo_tok_s),
                    100 * PerSecond(stream.during_tok_s, stream.before_tok_s), 1e3 * stream.longest_gap_s);
  }
  if (!has_rates) text += Line("no rates", result.no_rates);
  if (const std::optional<double> kept = result.SlowestKept())
    text += Line("slowest stream", fmt::format("keeps {:.1f} % of its solo rate", 100 * *kept));
  text += Line("long prompts",
               fmt::format("{} tokens computed in {:.2f} s: {:.1f} tok/s; TTFT p50 {:.2f} s, max {:.2f} s",
                           Thousands(result.long_prompt_tokens), result.reading_s, result.PrefillTokS(),
                           result.long_ttft_s.Quantile(0.5), result.long_ttft_s.Max()));
  text += Line("short prompt", result.short_ttft_s
                                   ? fmt::format("TTFT {:.3f} s behind the long ones", *result.short_ttft_s)
                                   : "not answered");
  return text + FailureLines(result.summary);
}

json::object Json(const FairnessResult& result) {
  json::object object = SummaryJson(result.summary, 0);
  object["interrupted"] = result.interrupted;
  if (result.no_rates.empty()) object["solo_tok_s"] = result.solo_tok_s;
  object["solo_max_gap_ms"] = 1e3 * result.solo_gap_s.Max();
  json::array& streams = object["streams"].emplace_array();
  for (const StreamFairness& stream : result.streams) {
    json::object figures{{"longest_gap_ms", 1e3 * stream.longest_gap_s}, {"answers", stream.answers}};
    if (result.no_rates.empty()) {
      figures["before_tok_s"] = stream.before_tok_s;
      figures["during_tok_s"] = stream.during_tok_s;
      figures["of_solo"] = PerSecond(stream.during_tok_s, result.solo_tok_s);
    }
    streams.push_back(std::move(figures));
  }
  if (!result.no_rates.empty()) object["no_rates"] = result.no_rates;
  if (const std::optional<double> kept = result.SlowestKept()) object["slowest_of_solo"] = *kept;
  object["reading_s"] = result.reading_s;
  object["long_prompt_tokens"] = result.long_prompt_tokens;
  object["prefill_throughput"] = result.PrefillTokS();
  AddLatency(object, "long_ttft", result.long_ttft_s);
  if (result.short_ttft_s) object["short_ttft_ms"] = 1e3 * *result.short_ttft_s;
  json::array& notes = object["notes"].emplace_array();
  for (const std::string& note : result.notes) notes.emplace_back(note);
  return object;
}

std::string Text(const NeedlesResult& result) {
  std::string text = InterruptedLine(result.interrupted) + SummaryText(result.summary, result.duration_s);
  for (const NeedleDepth& depth : result.depths) {
    text += Line(fmt::format("depth {:.0f} %", 100 * depth.depth),
                 fmt::format("{} of {} found{}", depth.found, depth.asked,
                             depth.first_miss.empty() ? "" : "; first miss: " + depth.first_miss));
  }
  return text + Line("needles", fmt::format("{} of {} found", result.found(), result.asked()));
}

json::object Json(const NeedlesResult& result) {
  json::object object = SummaryJson(result.summary, result.duration_s);
  object["interrupted"] = result.interrupted;
  json::array& depths = object["depths"].emplace_array();
  for (const NeedleDepth& depth : result.depths) {
    depths.push_back({{"depth", depth.depth},
                      {"asked", depth.asked},
                      {"found", depth.found},
                      {"first_miss", depth.first_miss}});
  }
  object["needles_asked"] = result.asked();
  object["needles_found"] = result.found();
  return object;
}

}  // namespace millrace::loadgen
