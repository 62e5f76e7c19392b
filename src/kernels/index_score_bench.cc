#include "kernels/index_score.h"

#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "base/check.h"
#include "kernels/index_score_ref.h"

namespace millrace::kernels {
namespace {

// One query of the released model, 32 heads of 128, over this many keys. Timed: all scores.
void BM_IndexScores(benchmark::State& state) {
  constexpr int64_t kHeads = 32;
  constexpr int64_t kDim = 128;
  constexpr float kScale = 0.088388346f;
  const int64_t n_keys = state.range(0);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto fill = [&](int64_t n) {
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = normal(random);
    return v;
  };
  const std::vector<float> q = fill(kHeads * kDim);
  const std::vector<float> weights = fill(kHeads);
  const std::vector<float> keys = fill(n_keys * kDim);
  std::vector<float> scores(static_cast<size_t>(n_keys));
  const auto score = [&] {
    IndexScores(q.data(), weights.data(), kHeads, kDim, keys.data(), n_keys, kScale, scores.data());
  };
  score();
  MILLRACE_CHECK(scores.back() == ref::IndexScore(q.data(), weights.data(), kHeads, kDim,
                                                  keys.data() + (n_keys - 1) * kDim, kScale),
                 "a timed index score differs from its reference");
  for (auto _ : state) {
    score();
    benchmark::DoNotOptimize(scores.data());
  }
  const auto iterations = static_cast<double>(state.iterations());
  const auto elements = static_cast<double>(n_keys * kDim);
  state.counters["GB/s"] = benchmark::Counter(iterations * 4e-9 * elements, benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] =
      benchmark::Counter(iterations * 2e-9 * kHeads * elements, benchmark::Counter::kIsRate);
}
// In the cache nearest to the core, and from memory.
BENCHMARK(BM_IndexScores)->ArgName("keys")->Arg(512)->Arg(65536)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace millrace::kernels
