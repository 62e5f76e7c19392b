#include "kernels/matmul.h"

#include <benchmark/benchmark.h>

#include <bit>
#include <random>
#include <vector>

#include "base/check.h"
#include "kernels/matmul_ref.h"

namespace millrace::kernels {
namespace {

constexpr const char* kFormatNames[] = {"f32", "bf16", "fp8", "fp4"};
constexpr int64_t kBitsPerWeight[] = {32, 16, 8, 4};

// Random codes whose values are finite and near one: subnormals would time the processor's slow path.
std::vector<uint32_t> RandomCodes(std::mt19937& random, WeightFormat format, size_t n_words) {
  uint32_t keep = 0xFFFFFFFFu;
  uint32_t set = 0;
  if (format == WeightFormat::kF32) keep = 0x807FFFFFu, set = 0x3F000000u;
  if (format == WeightFormat::kBf16) keep = 0x807F807Fu, set = 0x3F003F00u;
  if (format == WeightFormat::kFp8Tile32) keep = 0xBFBFBFBFu;
  std::vector<uint32_t> words(n_words);
  for (uint32_t& word : words) word = (static_cast<uint32_t>(random()) & keep) | set;
  return words;
}

void VerifyRow(const WeightMatrix& a, int64_t row, const std::vector<float>& x, const std::vector<float>& y) {
  for (size_t t = 0; t < x.size() / static_cast<size_t>(a.cols); ++t) {
    const float expected = ref::RowDot(a, row, x.data() + t * static_cast<size_t>(a.cols));
    const float actual = y[t * static_cast<size_t>(a.rows) + static_cast<size_t>(row)];
    MILLRACE_CHECK(std::bit_cast<uint32_t>(actual) == std::bit_cast<uint32_t>(expected),
                   "a timed matmul differs from its reference");
  }
}

// One thread multiplies a whole matrix with all tokens. Timed: decoding and multiplying, the matrix mostly
// from memory. Counters: weight bytes and multiply-adds (two operations) a second.
void BM_MatMul(benchmark::State& state, WeightFormat format, int64_t rows, int64_t cols, int64_t n_tokens) {
  std::mt19937 random(1);
  const auto f = static_cast<size_t>(format);
  const int64_t bytes = rows * cols * kBitsPerWeight[f] / 8;
  const std::vector<uint32_t> data = RandomCodes(random, format, static_cast<size_t>(bytes / 4));
  const std::vector<uint8_t> scales(static_cast<size_t>(rows * cols / 32), 120);
  WeightMatrix a{.format = format,
                 .rows = rows,
                 .cols = cols,
                 .data = reinterpret_cast<const std::byte*>(data.data()),
                 .scales = reinterpret_cast<const std::byte*>(scales.data())};
  a.ordinary = IsOrdinary(a);
  std::vector<float> x(static_cast<size_t>(n_tokens * cols));
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(random);
  std::vector<float> y(static_cast<size_t>(n_tokens * rows));
  std::vector<float> scratch(MatMulScratchFloats(cols));
  const auto multiply = [&] {
    MatMul(a, 0, rows, {.base = x.data(), .stride = cols}, n_tokens, y.data(), rows, scratch);
  };
  multiply();
  for (const int64_t row : {int64_t{0}, rows / 3, rows - 1}) VerifyRow(a, row, x, y);
  for (auto _ : state) {
    multiply();
    benchmark::DoNotOptimize(y.data());
  }
  state.SetLabel(kFormatNames[f]);
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["GB/s"] =
      benchmark::Counter(iterations * static_cast<double>(bytes) * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] = benchmark::Counter(
      iterations * 2e-9 * static_cast<double>(rows * cols * n_tokens), benchmark::Counter::kIsRate);
}

void BM_Square(benchmark::State& state) {
  BM_MatMul(state, static_cast<WeightFormat>(state.range(0)), 5120, 5120, state.range(1));
}
BENCHMARK(BM_Square)
    ->ArgNames({"format", "tokens"})
    ->ArgsProduct({{0, 1, 2, 3}, {1, 8, 64}})
    ->Unit(benchmark::kMillisecond);

void BM_QueryHeads(benchmark::State& state) {
  BM_MatMul(state, static_cast<WeightFormat>(state.range(0)), 32768, 1280, 1);
}
BENCHMARK(BM_QueryHeads)->ArgName("format")->DenseRange(0, 3)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace millrace::kernels
