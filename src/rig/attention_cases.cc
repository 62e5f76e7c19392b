#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_ref.h"
#include "kernels/peak_loops.h"
#include "kernels/quantize.h"
#include "rig/kernel_cases.h"
#include "rig/matrix_copies.h"
#include "rig/verify.h"

namespace millrace::rig {
namespace {

constexpr int64_t kHeads = 64;
constexpr int64_t kDim = 512;
constexpr int64_t kWindow = 128;
constexpr int64_t kSelected = 512;
constexpr int64_t kRows = kWindow + kSelected;
constexpr float kScale = 0.044194174f;
// Entries of a long context, 75 MB; 4096 different ones repeat.
constexpr int64_t kEntries = 262144;
constexpr int64_t kDifferent = 4096;
constexpr int64_t kSelections = 16;

// A token of a long context in one layer: its 64 heads over a full window and 512 entries from all over the
// context, other ones each time.
class DecodingToken {
 public:
  explicit DecodingToken(Team& team)
      : team_(team),
        q_(RandomActivations(kHeads * kDim, 31)),
        sinks_(RandomActivations(kHeads, 32)),
        window_codes_(kWindow * kDim),
        window_scales_(kWindow * kDim / 32),
        latent_codes_(kEntries * kDim / 2),
        latent_scales_(kEntries * kDim / 16),
        weights_(static_cast<size_t>(kHeads * kernels::AttentionStride(kRows))),
        denominators_(kHeads),
        out_(kHeads * kDim) {
    const kernels::AlignedVector<float> window = RandomActivations(kWindow * kDim, 33);
    kernels::QuantizeQ8(window.data(), kWindow * kDim, window_codes_.data(), window_scales_.data());
    FillLatents();
    std::mt19937_64 random(35);
    for (int64_t s = 0; s < kSelections; ++s) {
      std::vector<int64_t> chosen(kSelected);
      for (int64_t& entry : chosen) entry = static_cast<int64_t>(random() % kEntries);
      std::ranges::sort(chosen);
      for (const int64_t entry : chosen)
        selections_.push_back({LatentCodes() + entry * kDim / 2, LatentScales() + entry * kDim / 16});
    }
    query_ = {.n_heads = kHeads,
              .head_dim = kDim,
              .rows = {.window_codes = window_codes_.data(),
                       .window_scales = window_scales_.data(),
                       .n_window = kWindow,
                       .selected = selections_.data(),
                       .n_selected = kSelected},
              .q = q_.data(),
              .sinks = sinks_.data(),
              .scale = kScale,
              .weights = weights_.data(),
              .denominators = denominators_.data(),
              .out = out_.data()};
  }
  DecodingToken(const DecodingToken&) = delete;
  DecodingToken& operator=(const DecodingToken&) = delete;

  // A query with rows, then weights with rows.
  static double Operations() { return 2.0 * 2 * kHeads * kDim * kRows; }

  // Shared over threads as model/attention_site.cc shares a single token.
  void Run() {
    query_.rows.selected = selections_.data() + next_ * kSelected;
    next_ = (next_ + 1) % kSelections;
    constexpr int64_t kRowsAPart = 8 * kernels::kLogitRows;
    constexpr int64_t kHeadsAPart = 8;
    constexpr int64_t kChannels = kernels::kOutputChannels;
    team_.pool().ParallelFor((kRows + kRowsAPart - 1) / kRowsAPart, [&](size_t part, int worker) {
      const int64_t begin = static_cast<int64_t>(part) * kRowsAPart;
      kernels::AttentionLogits(query_, begin, std::min(begin + kRowsAPart, kRows), Tile(worker));
    });
    team_.pool().ParallelFor(kHeads / kHeadsAPart, [&](size_t part, int) {
      const int64_t begin = static_cast<int64_t>(part) * kHeadsAPart;
      kernels::AttentionWeights(query_, begin, begin + kHeadsAPart);
    });
    team_.pool().ParallelFor(kDim / kChannels, [&](size_t part, int worker) {
      const int64_t begin = static_cast<int64_t>(part) * kChannels;
      kernels::AttentionOutputs(query_, begin, begin + kChannels, 0, kHeads, Tile(worker));
    });
  }

  Status Verify() const {
    for (const int64_t h : {int64_t{0}, kHeads - 1}) {
      const std::vector<float> expected = kernels::ref::AttentionHead(query_, h);
      for (int64_t d = 0; d < kDim; ++d) {
        MILLRACE_RETURN_IF_ERROR(ExpectSameBits(out_[static_cast<size_t>(h * kDim + d)],
                                                expected[static_cast<size_t>(d)],
                                                fmt::format("attention, head {}, channel {}", h, d)));
      }
    }
    return {};
  }

 private:
  std::span<float> Tile(int worker) {
    return team_.Scratch(worker, kernels::AttentionTileFloats(kHeads, kDim));
  }
  uint8_t* LatentCodes() const { return reinterpret_cast<uint8_t*>(latent_codes_.data()); }
  uint8_t* LatentScales() const { return reinterpret_cast<uint8_t*>(latent_scales_.data()); }

  void FillLatents() {
    const kernels::AlignedVector<float> latents = RandomActivations(kDifferent * kDim, 34);
    kernels::QuantizeQ4b(latents.data(), kDifferent * kDim, LatentCodes(), LatentScales());
    for (int64_t e = kDifferent; e < kEntries; e += kDifferent) {
      std::memcpy(LatentCodes() + e * kDim / 2, LatentCodes(), kDifferent * kDim / 2);
      std::memcpy(LatentScales() + e * kDim / 16, LatentScales(), kDifferent * kDim / 16);
    }
  }

  Team& team_;
  kernels::AlignedVector<float> q_, sinks_;
  kernels::AlignedVector<uint8_t> window_codes_, window_scales_;
  HugeBuffer latent_codes_, latent_scales_;
  std::vector<kernels::LatentRow> selections_;  // [kSelections, kSelected]
  kernels::AlignedVector<float> weights_, denominators_, out_;
  kernels::AttentionQuery query_;
  int64_t next_ = 0;
};

}  // namespace

Result<std::vector<BenchRow>> DecodeAttention(KernelBench& bench) {
  DecodingToken token(bench.team);
  token.Run();
  MILLRACE_RETURN_IF_ERROR(token.Verify());
  const Contestant contestants[] = {
      {.run = [&] { token.Run(); }, .work = DecodingToken::Operations(), .team = &bench.team},
      bench.limits.Floats(bench.team)};
  BenchRow row{.name = "attention",
               .shape = fmt::format("{} heads x {}, {} + {} rows", kHeads, kDim, kWindow, kSelected),
               .instruction_set = kernels::FloatInstructionSet(),
               .threads = bench.team.size(),
               .unit = "GFLOP/s",
               .limit_name = "multiply-add peak"};
  row.Take(TimeInTurn(contestants), 1e9);
  return std::vector<BenchRow>{row};
}

}  // namespace millrace::rig
