#include "kernels/index_score.h"

#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/bench_slices.h"
#include "kernels/index_score_ref.h"
#include "kernels/peak_loops.h"
#include "kernels/quantize.h"
#include "kernels/scoped_target.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kHeads = 32;
constexpr int64_t kDim = 128;
constexpr float kScale = 0.088388346f;

// Normally distributed vectors, quantised.
struct Fp4Vectors {
  Fp4Vectors(std::mt19937& random, int64_t n)
      : codes(static_cast<size_t>(n * kDim / 2)), scales(static_cast<size_t>(n * kDim / 32)) {
    std::normal_distribution<float> normal;
    std::vector<float> x(kDim);
    for (int64_t i = 0; i < n; ++i) {
      for (float& v : x) v = normal(random);
      QuantizeQ4a(x.data(), kDim, codes.data() + i * kDim / 2, scales.data() + i * kDim / 32);
    }
  }
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
};

// Queries of the released model, 32 heads of 128, over many keys; `run` keys are contiguous: 256 as in a
// page, 8 as in a candidate block. Timed: all scores, in turns with the machine's byte dot products.
void BM_IndexScores(benchmark::State& state, int64_t target, size_t n_queries, int64_t n_keys, int64_t run) {
  const ScopedTarget scope(target);
  std::mt19937 random(1);
  const Fp4Vectors keys(random, n_keys);
  std::vector<IndexKeys> runs;
  for (int64_t j = 0; j < n_keys; j += run) {
    runs.push_back({.codes = keys.codes.data() + j * kDim / 2,
                    .scales = keys.scales.data() + j * kDim / 32,
                    .n = std::min(run, n_keys - j)});
  }
  if (run < 256) std::shuffle(runs.begin(), runs.end(), random);
  std::vector<float> weights(kHeads);
  for (float& w : weights) w = std::normal_distribution<float>()(random);
  const Fp4Vectors q(random, kHeads);
  const size_t query_bytes = IndexQuery::BytesFor(kHeads, kDim);
  AlignedVector<std::byte> memory(n_queries * query_bytes + IndexScoreScratchBytes(kDim));
  const std::span<std::byte> bytes(memory);
  std::vector<IndexQuery> queries;
  for (size_t i = 0; i < n_queries; ++i) {
    queries.emplace_back(bytes.subspan(i * query_bytes, query_bytes), kHeads, kDim);
    queries.back().Assign(q.codes.data(), q.scales.data(), weights.data(), kScale);
  }
  std::vector<float> scores(n_queries * static_cast<size_t>(n_keys));
  const auto score = [&] {
    IndexScores(queries, runs, scores.data(), n_keys, bytes.subspan(n_queries * query_bytes));
  };
  score();
  const IndexKeys& last = runs.back();
  MILLRACE_CHECK(scores.back() == ref::IndexScore(q.codes.data(), q.scales.data(), weights.data(), kHeads,
                                                  kDim, last.codes + (last.n - 1) * kDim / 2,
                                                  last.scales + (last.n - 1) * kDim / 32, kScale),
                 "a timed index score differs from its reference");
  const double operations =
      2.0 * static_cast<double>(kHeads * kDim * n_keys) * static_cast<double>(n_queries);
  std::vector<double> ratios;
  double best = 0;
  double best_peak = 0;
  for (auto _ : state) {
    double peak_operations = 0;
    const double peak_seconds = SecondsOf([&] { peak_operations = Int8PeakLoop(40000); });
    const double seconds = SecondsOf(score);
    state.SetIterationTime(seconds);
    const double rate = operations / seconds;
    const double peak = peak_operations / peak_seconds;
    ratios.push_back(rate / peak);
    best = std::max(best, rate);
    best_peak = std::max(best_peak, peak);
  }
  state.counters["Gop/s"] = best * 1e-9;
  state.counters["of int8 peak"] = Median(ratios);
  state.counters["best of best"] = best / best_peak;
}

const bool kRegistered = [] {
  for (const int64_t target : RunnableTargets()) {
    if (target == HWY_STATIC_TARGET) continue;
    const auto add = [&](size_t n_queries, int64_t n_keys, int64_t run) {
      const std::string name = std::string("BM_IndexScores/") + hwy::TargetName(target) +
                               "/queries:" + std::to_string(n_queries) + "/keys:" + std::to_string(n_keys) +
                               "/run:" + std::to_string(run);
      benchmark::RegisterBenchmark(
          name.c_str(),
          [=](benchmark::State& state) { BM_IndexScores(state, target, n_queries, n_keys, run); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    };
    add(1, 512, 256);
    add(1, 16384, 8);
    add(1, 262144, 256);
    add(4, 16384, 256);
  }
  return true;
}();

}  // namespace
}  // namespace millrace::kernels
