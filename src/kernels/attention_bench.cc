#include "kernels/attention.h"

#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/attention_ref.h"
#include "kernels/bench_slices.h"
#include "kernels/peak_loops.h"
#include "kernels/quantize.h"
#include "kernels/scoped_target.h"

namespace millrace::kernels {
namespace {

// One query of the released model: 64 heads of 512 over a full window and a full selection. Timed, in turns
// with the machine's multiply-adds: the whole, or one of its steps, rows in the cache.
struct Case {
  Case() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto fill = [&](int64_t n) {
      AlignedVector<float> v(static_cast<size_t>(n));
      for (float& x : v) x = normal(random);
      return v;
    };
    q = fill(kHeads * kDim);
    sinks = fill(kHeads);
    QuantizeQ8(fill(kWindow * kDim).data(), kWindow * kDim, window_codes.data(), window_scales.data());
    QuantizeQ4b(fill(kSelected * kDim).data(), kSelected * kDim, latent_codes.data(), latent_scales.data());
    for (size_t a = 0; a < kSelected; ++a)
      latents.push_back({&latent_codes[a * kDim / 2], &latent_scales[a * kDim / 16]});
    query = {.n_heads = kHeads,
             .head_dim = kDim,
             .rows = {.window_codes = window_codes.data(),
                      .window_scales = window_scales.data(),
                      .n_window = kWindow,
                      .selected = latents.data(),
                      .n_selected = kSelected},
             .q = q.data(),
             .sinks = sinks.data(),
             .scale = 0.044194174f,
             .weights = weights.data(),
             .denominators = denominators.data(),
             .out = out.data()};
    SparseAttention(query, tile);
    const std::vector<float> last = ref::AttentionHead(query, kHeads - 1);
    MILLRACE_CHECK(std::equal(last.begin(), last.end(), out.end() - kDim),
                   "the timed attention differs from its reference");
  }

  static constexpr int64_t kHeads = 64;
  static constexpr int64_t kDim = 512;
  static constexpr int64_t kWindow = 128;
  static constexpr int64_t kSelected = 512;
  static constexpr int64_t kRows = kWindow + kSelected;
  AlignedVector<float> q, sinks;
  AlignedVector<uint8_t> window_codes = AlignedVector<uint8_t>(kWindow * kDim);
  AlignedVector<uint8_t> window_scales = AlignedVector<uint8_t>(kWindow * kDim / 32);
  AlignedVector<uint8_t> latent_codes = AlignedVector<uint8_t>(kSelected * kDim / 2);
  AlignedVector<uint8_t> latent_scales = AlignedVector<uint8_t>(kSelected * kDim / 16);
  std::vector<LatentRow> latents;
  AlignedVector<float> weights = AlignedVector<float>(kHeads * AttentionStride(kRows));
  AlignedVector<float> denominators = AlignedVector<float>(kHeads);
  AlignedVector<float> out = AlignedVector<float>(kHeads * kDim);
  AlignedVector<float> tile = AlignedVector<float>(AttentionTileFloats(kHeads, kDim));
  AttentionQuery query;
};

template <typename Work>
void Measure(benchmark::State& state, int64_t target, double products, const Work& work) {
  const ScopedTarget scope(target);
  Case c;
  std::vector<double> ratios;
  double best = 0;
  double best_peak = 0;
  for (auto _ : state) {
    double peak_operations = 0;
    const double peak_seconds = SecondsOf([&] { peak_operations = FloatPeakLoop(20000); });
    const double seconds = SecondsOf([&] { work(c); });
    state.SetIterationTime(seconds);
    best = std::max(best, 2 * products / seconds);
    best_peak = std::max(best_peak, peak_operations / peak_seconds);
    ratios.push_back(2 * products / seconds / (peak_operations / peak_seconds));
  }
  state.counters["GFLOP/s"] = best * 1e-9;
  state.counters["of multiply-add peak"] = Median(ratios);
  state.counters["best of best"] = best / best_peak;
}

const bool kRegistered = [] {
  constexpr double kProducts = Case::kHeads * Case::kRows * Case::kDim;
  for (const int64_t target : RunnableTargets()) {
    if (target == HWY_STATIC_TARGET || target == HWY_AVX3_DL) continue;
    const auto add = [&](const char* what, double products, auto work) {
      benchmark::RegisterBenchmark(
          (std::string("BM_SparseAttention/") + hwy::TargetName(target) + "/" + what).c_str(),
          [=](benchmark::State& state) { Measure(state, target, products, work); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    };
    add("whole", 2 * kProducts, [](Case& c) { SparseAttention(c.query, c.tile); });
    add("logits", kProducts, [](Case& c) { AttentionLogits(c.query, 0, Case::kRows, c.tile); });
    add("outputs", kProducts,
        [](Case& c) { AttentionOutputs(c.query, 0, Case::kDim, 0, Case::kHeads, c.tile); });
  }
  return true;
}();

}  // namespace
}  // namespace millrace::kernels
