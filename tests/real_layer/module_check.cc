#include "real_layer/module_check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

namespace millrace::real_layer {
namespace {

constexpr int64_t kTokensTogether = 128;  // streams in float64 are large

std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> range(static_cast<size_t>(end - begin));
  std::iota(range.begin(), range.end(), begin);
  return range;
}

const std::vector<std::vector<float>>& Floats(const Recording& recording, const std::string& name) {
  const auto at = recording.floats.find(name);
  Require(at != recording.floats.end(), name + " was not recorded");
  return at->second;
}

const std::vector<std::vector<int64_t>>& Integers(const Recording& recording, const std::string& name) {
  const auto at = recording.integers.find(name);
  Require(at != recording.integers.end(), name + " was not recorded");
  return at->second;
}

}  // namespace

void Report::Print(const std::string& title) const {
  std::printf("%s\n%-18s %12s %12s %12s %9s\n", title.c_str(), "module", "compared", "worst", "of error",
              "flipped");
  for (const auto& [module, line] : lines_) {
    std::printf("%-18s %12zu %12.2e %12.3f %9zu\n", module.c_str(), line.compared, line.worst,
                line.worst_of_error, line.flipped);
  }
}

ModuleCheck::ModuleCheck(const Reference64& reference, const Recording& recording,
                         std::vector<int64_t> sample, double tolerance, Report& report)
    : reference_(reference),
      recording_(recording),
      sample_(std::move(sample)),
      all_(Range(0, static_cast<int64_t>(recording.ids.size()))),
      tolerance_(tolerance),
      report_(report) {
  const auto n = static_cast<int64_t>(all_.size());
  for (int64_t begin = 0; begin < n; begin += kTokensTogether)
    slices_.push_back(Range(begin, std::min(n, begin + kTokensTogether)));
}

std::string ModuleCheck::Name(int l, const std::string& module) const {
  return fmt::format("L{}.{}", l, module);
}

Rows64 ModuleCheck::Take(const std::string& name, const Positions& positions) const {
  const std::vector<std::vector<float>>& rows = Floats(recording_, name);
  std::vector<std::vector<float>> taken;
  for (const int64_t position : positions) taken.push_back(rows.at(static_cast<size_t>(position)));
  return ExactRows(taken);
}

std::vector<std::vector<int64_t>> ModuleCheck::TakeIntegers(const std::string& name,
                                                            const Positions& positions) const {
  const std::vector<std::vector<int64_t>>& rows = Integers(recording_, name);
  std::vector<std::vector<int64_t>> taken;
  for (const int64_t position : positions) taken.push_back(rows.at(static_cast<size_t>(position)));
  return taken;
}

Rows64 ModuleCheck::StreamsIntoLayer(int l, const Positions& positions) const {
  if (l > 0) return Take(Name(l - 1, "streams"), positions);
  std::vector<TokenId> ids;
  for (const int64_t position : positions) ids.push_back(recording_.ids[static_cast<size_t>(position)]);
  return reference_.InitialStreams(ids);
}

Rows64 ModuleCheck::StreamsInto(int l, const std::string& site, const Positions& positions) const {
  if (site == "ffn") return Take(Name(l, "streams_attn"), positions);
  if (reference_.EngramNumber(l)) return Take(Name(l, "streams_engram"), positions);
  return StreamsIntoLayer(l, positions);
}

Rows64 ModuleCheck::PreInto(int l, const std::string& site, const Positions& positions) const {
  if (site == "ffn") return Take(Name(l, "attn_pre"), positions);
  if (l > 0) return Take(Name(l - 1, "ffn_pre"), positions);
  Rows64 first_stream(static_cast<int64_t>(positions.size()), reference_.config().hc_mult);
  for (int64_t t = 0; t < first_stream.n; ++t) first_stream.values(t)[0] = 1;
  return first_stream;
}

ModuleCheck::Positions ModuleCheck::Selected(int source, int64_t position) const {
  Positions selected = TakeIntegers(Name(source, "topk"), {position})[0];
  std::erase(selected, -1);
  std::ranges::sort(selected);
  return selected;
}

ModuleCheck::Positions ModuleCheck::Candidates(int64_t position) const {
  const int source = static_cast<int>(reference_.config().candidate_source_layer_id);
  const Positions kept = TakeIntegers(Name(source, "candidate_blocks"), {position})[0];
  Positions blocks;
  for (size_t b = 0; b < kept.size(); ++b)
    if (kept[b] != 0) blocks.push_back(static_cast<int64_t>(b));
  return blocks;
}

void ModuleCheck::Compare(int l, const std::string& module, const Rows64& want, const Positions& positions) {
  const std::string name = l < 0 ? module : Name(l, module);
  const Rows64 got = Take(name, positions);
  ASSERT_EQ(got.width, want.width) << name;
  ASSERT_EQ(got.n, want.n) << name;
  Report::Line& line = report_[module];
  line.compared += got.value.size();
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < got.value.size(); ++i) {
    const double difference = std::fabs(got.value[i] - want.value[i]);
    const double share = difference == 0 ? 0 : difference / want.error[i];
    line.worst = std::max(line.worst, difference);
    if (share <= worst) continue;  // false for NaN too
    worst = std::isnan(share) ? INFINITY : share;
    at = i;
  }
  line.worst_of_error = std::max(line.worst_of_error, worst);
  EXPECT_LE(worst, tolerance_) << name << " at position " << positions[at / static_cast<size_t>(got.width)]
                               << ", column " << at % static_cast<size_t>(got.width) << ": " << got.value[at]
                               << " instead of " << want.value[at] << " +- " << want.error[at];
}

void ModuleCheck::CompareQuantised(int l, const std::string& module, const Quantised& want,
                                   const Positions& positions) {
  const std::string name = Name(l, module);
  const Rows64 got = Take(name, positions);
  ASSERT_EQ(got.width, want.width) << name;
  ASSERT_EQ(got.n, want.n) << name;
  size_t flipped = 0;
  double worst = 0;
  for (size_t i = 0; i < got.value.size(); ++i) {
    if (got.value[i] == want.value[i]) continue;
    ++flipped;
    const double difference = std::fabs(got.value[i] - want.value[i]);
    worst = std::max(worst, difference);
    EXPECT_LE(difference, want.step[i])
        << name << " at position " << positions[i / static_cast<size_t>(got.width)] << ", column "
        << i % static_cast<size_t>(got.width) << ": " << got.value[i] << " instead of " << want.value[i];
  }
  EXPECT_LE(flipped, std::max<size_t>(1, got.value.size() / 10000)) << name;
  Report::Line& line = report_[module];
  line.compared += got.value.size();
  line.worst = std::max(line.worst, worst);
  line.flipped += flipped;
}

void ModuleCheck::CompareIntegers(int l, const std::string& module, const std::vector<int64_t>& got,
                                  const std::vector<int64_t>& want, int64_t position) {
  Report::Line& line = report_[module];
  line.compared += want.size();
  if (got == want) return;
  ++line.flipped;
  ADD_FAILURE() << "L" << l << "." << module << " differs at position " << position;
}

void ModuleCheck::CheckHashIds(const EngramHash64& hash) {
  const std::span<const TokenId> ids(recording_.ids);
  const size_t n_layers = reference_.config().engram_layer_ids.size();
  for (const int64_t position : all_) {
    std::vector<int64_t> want;
    for (size_t layer = 0; layer < n_layers; ++layer) {
      const std::vector<int64_t> rows = hash.Rows(layer, ids.first(static_cast<size_t>(position) + 1));
      want.insert(want.end(), rows.begin(), rows.end());
    }
    CompareIntegers(-1, "hash_ids", TakeIntegers("hash_ids", {position})[0], want, position);
  }
}

void ModuleCheck::CheckEngram(int l) {
  const std::optional<size_t> number = reference_.EngramNumber(l);
  std::vector<std::vector<int64_t>> rows = TakeIntegers("hash_ids", sample_);
  for (std::vector<int64_t>& of_layers : rows) {
    const size_t columns = of_layers.size() / reference_.config().engram_layer_ids.size();
    const auto first = of_layers.begin() + static_cast<std::ptrdiff_t>(*number * columns);
    of_layers = {first, first + static_cast<std::ptrdiff_t>(columns)};
  }
  const auto [gates, streams] = reference_.Engram(l, StreamsIntoLayer(l, sample_), rows);
  Compare(l, "engram_gate", gates, sample_);
  Compare(l, "streams_engram", streams, sample_);
}

void ModuleCheck::CheckSite(int l, const std::string& site, const std::string& streams_after) {
  for (const Positions& slice : slices_) {
    const Rows64 streams = StreamsInto(l, site, slice);
    const Reference64::Coefficients mix = reference_.Mix(l, site, streams);
    Compare(l, site + "_pre", mix.pre, slice);
    Compare(l, site + "_post", mix.post, slice);
    Compare(l, site + "_comb", mix.comb, slice);
    Compare(l, site + "_in", reference_.SiteInput(l, site, streams, PreInto(l, site, slice)), slice);
    const Rows64 expanded =
        reference_.Expand(Take(Name(l, site + "_out"), slice), Take(Name(l, site + "_post"), slice),
                          Take(Name(l, site + "_comb"), slice), streams);
    Compare(l, streams_after, expanded, slice);
  }
}

void ModuleCheck::CheckWindow(int l) {
  const Rows64 x = Take(Name(l, "attn_in"), all_);
  CompareQuantised(l, "window_kv", reference_.WindowKv(l, x, all_), all_);
}

void ModuleCheck::CheckEntries(int l) {
  const Rows64 latents = reference_.Latents(l, Take(Name(l, "attn_in"), all_));
  const Positions entries = Range(0, latents.n);
  EXPECT_EQ(Floats(recording_, Name(l, "latent")).size(), entries.size());
  Compare(l, "latent", latents, entries);
  const Rows64 recorded = Take(Name(l, "latent"), entries);
  CompareQuantised(l, "index_k", reference_.IndexKeys(l, recorded), entries);
  CompareQuantised(l, "compressed_kv", reference_.CompressedKv(l, recorded), entries);
}

void ModuleCheck::CheckIndexScores(int l) {
  const Rows64 x = Take(Name(l, "attn_in"), sample_);
  CompareQuantised(l, "index_q", reference_.IndexQueries(l, x, sample_), sample_);
  const Rows64 keys = Take(Name(reference_.KvSource(l), "index_k"), Range(0, Visible(l, all_.back())));
  const Rows64 scores = reference_.IndexScores(l, x, Take(Name(l, "index_q"), sample_), keys);
  Report::Line& line = report_["index_scores"];
  for (int64_t t = 0; t < scores.n; ++t) {
    const int64_t position = sample_[static_cast<size_t>(t)];
    const std::vector<float>& got =
        Floats(recording_, Name(l, "index_scores"))[static_cast<size_t>(position)];
    for (int64_t j = 0; j < static_cast<int64_t>(got.size()); ++j) {
      if (j >= Visible(l, position)) {
        EXPECT_EQ(got[static_cast<size_t>(j)], -INFINITY) << "L" << l << " position " << position;
        continue;
      }
      const double difference = std::fabs(got[static_cast<size_t>(j)] - scores.values(t)[j]);
      ++line.compared;
      line.worst = std::max(line.worst, difference);
      const double share = difference == 0 ? 0 : difference / scores.errors(t)[j];
      line.worst_of_error = std::max(line.worst_of_error, share);
      EXPECT_LE(share, tolerance_) << "L" << l << " score of entry " << j << " for position " << position;
    }
  }
}

void ModuleCheck::CheckSelection(int l) {
  for (const int64_t position : all_) {
    const std::vector<float>& recorded =
        Floats(recording_, Name(l, "index_scores"))[static_cast<size_t>(position)];
    const auto scores = std::span(recorded).first(static_cast<size_t>(Visible(l, position)));
    std::optional<Positions> candidates;
    if (reference_.UsesCandidates(l)) candidates = Candidates(position);
    CompareIntegers(l, "topk", Selected(l, position), reference_.SelectEntries(scores, candidates), position);
    if (!reference_.PublishesCandidates(l)) continue;
    CompareIntegers(l, "candidate_blocks", Candidates(position), reference_.CandidateBlocks(scores),
                    position);
  }
}

void ModuleCheck::CheckAttention(int l) {
  std::vector<Rows64> attended;
  for (const int64_t position : sample_) {
    const int64_t first = std::max<int64_t>(0, position + 1 - reference_.config().sliding_window);
    Rows64 rows = Take(Name(l, "window_kv"), Range(first, position + 1));
    if (reference_.ratio(l) > 0) {
      const Positions selected = Selected(reference_.IndexSource(l), position);
      const Rows64 entries = Take(Name(reference_.KvSource(l), "compressed_kv"), selected);
      rows.n += entries.n;
      rows.value.insert(rows.value.end(), entries.value.begin(), entries.value.end());
      rows.error.resize(rows.value.size());
    }
    attended.push_back(std::move(rows));
  }
  Compare(l, "attn_out", reference_.Attention(l, Take(Name(l, "attn_in"), sample_), sample_, attended),
          sample_);
}

void ModuleCheck::CheckRouter(int l) {
  Compare(l, "router_scores", reference_.RouterScores(l, Take(Name(l, "ffn_in"), all_)), all_);
  for (const int64_t position : all_) {
    const std::vector<float>& scores =
        Floats(recording_, Name(l, "router_scores"))[static_cast<size_t>(position)];
    CompareIntegers(l, "router_idx", TakeIntegers(Name(l, "router_idx"), {position})[0],
                    reference_.ChooseExperts(l, scores), position);
  }
  const Rows64 scores = Take(Name(l, "router_scores"), all_);
  Compare(l, "router_w", reference_.ExpertWeights(scores, TakeIntegers(Name(l, "router_idx"), all_)), all_);
}

void ModuleCheck::CheckExperts(int l) {
  const Rows64 y =
      reference_.Experts(l, Take(Name(l, "ffn_in"), sample_), TakeIntegers(Name(l, "router_idx"), sample_),
                         Take(Name(l, "router_w"), sample_));
  Compare(l, "ffn_out", y, sample_);
}

void ModuleCheck::CheckLayer(int l) {
  if (reference_.EngramNumber(l)) CheckEngram(l);
  CheckSite(l, "attn", "streams_attn");
  CheckWindow(l);
  if (reference_.ratio(l) > 0) {
    if (reference_.OwnsKv(l)) CheckEntries(l);
    if (reference_.OwnsIndex(l)) {
      CheckIndexScores(l);
      CheckSelection(l);
    }
  }
  CheckAttention(l);
  CheckSite(l, "ffn", "streams");
  CheckRouter(l);
  CheckExperts(l);
}

void ModuleCheck::CheckOutput() {
  const int last = static_cast<int>(reference_.config().num_hidden_layers) - 1;
  const Positions& positions = recording_.output_positions;
  if (positions.empty()) return;
  const Rows64 norm =
      reference_.FinalNorm(Take(Name(last, "streams"), positions), Take(Name(last, "ffn_pre"), positions));
  const Positions rows = Range(0, static_cast<int64_t>(positions.size()));
  Compare(-1, "final_norm", norm, rows);
  Compare(-1, "logits", reference_.Logits(Take("final_norm", rows)), rows);
}

}  // namespace millrace::real_layer
