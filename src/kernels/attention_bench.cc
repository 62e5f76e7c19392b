#include "kernels/attention.h"

#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "base/check.h"
#include "kernels/attention_ref.h"

namespace millrace::kernels {
namespace {

// One query of the released model: 64 heads of 512 over a full window and a full selection. Timed: the
// logits, the softmax and the weighted sum, all rows in the cache.
void BM_SparseAttention(benchmark::State& state) {
  constexpr int64_t kHeads = 64;
  constexpr int64_t kDim = 512;
  constexpr int64_t kWindow = 128;
  constexpr int64_t kSelected = 512;
  constexpr int64_t kRows = kWindow + kSelected;
  constexpr float kScale = 0.044194174f;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto fill = [&](int64_t n) {
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = normal(random);
    return v;
  };
  const std::vector<float> q = fill(kHeads * kDim);
  const std::vector<float> kv = fill(kRows * kDim);
  const std::vector<float> sinks = fill(kHeads);
  const AttentionRows rows{.window = kv.data(),
                           .n_window = kWindow,
                           .selected = kv.data() + kWindow * kDim,
                           .n_selected = kSelected};
  std::vector<float> out(q.size());
  std::vector<float> scratch(AttentionScratchFloats(kRows));
  const auto attend = [&] {
    SparseAttention(q.data(), kHeads, kDim, rows, sinks.data(), kScale, out.data(), scratch);
  };
  attend();
  const std::vector<float> last =
      ref::AttentionHead(q.data() + (kHeads - 1) * kDim, kDim, rows, sinks.back(), kScale);
  MILLRACE_CHECK(std::equal(last.begin(), last.end(), out.end() - kDim),
                 "the timed attention differs from its reference");
  for (auto _ : state) {
    attend();
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["GFLOP/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * 4e-9 * kHeads * kRows * kDim, benchmark::Counter::kIsRate);
}
BENCHMARK(BM_SparseAttention)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace millrace::kernels
