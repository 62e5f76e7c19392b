#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/peak_loops.h"
#include "kernels/swiglu.h"
#include "rig/kernel_cases.h"
#include "rig/matrix_copies.h"
#include "rig/quantized_batch.h"
#include "rig/verify.h"

namespace millrace::rig {
namespace {

using kernels::WeightFormat;

constexpr int64_t kHidden = 5120;
constexpr int64_t kWidth = 2304;
constexpr int64_t kExperts = 48;
constexpr int64_t kTopK = 6;
constexpr int64_t kTokensAnExpert = 8;
constexpr int64_t kTokens = kExperts * kTokensAnExpert / kTopK;
constexpr int64_t kSlots = kTokens * kTopK;
// Sixteen experts are 300 MB; the 48 use them in turn, so each finds its weights in memory, not in a cache.
constexpr int64_t kStored = 16;
constexpr int64_t kBlockRows = 32;  // that are rounded together
constexpr float kSwiGluLimit = 10;
constexpr float kRoutingWeight = 0.25f;

// The routed experts of a small prompt: 64 tokens that choose 6 of 48 each, every expert eight times. The
// steps are those of the forward pass (model/moe_site.cc) after routing.
class ExpertBatch {
 public:
  ExpertBatch(bool fast, Team& team)
      : fast_(fast),
        team_(team),
        up_(WeightFormat::kFp4Row32, kWidth, kHidden, 2 * kStored, team),
        down_(WeightFormat::kFp4Row32, kHidden, kWidth, kStored, team),
        x_(RandomActivations(kTokens * kHidden, 11)),
        token_codes_(kTokens, kHidden),
        slot_codes_(kSlots, kWidth),
        slot_token_(kSlots),
        gate_rows_(kSlots * kWidth),
        up_rows_(kSlots * kWidth),
        down_rows_(kSlots * kHidden),
        out_(kTokens * kHidden) {
    for (int64_t e = 0; e < kExperts; ++e) {
      for (int64_t i = 0; i < kTokensAnExpert; ++i)
        slot_token_[static_cast<size_t>(e * kTokensAnExpert + i)] =
            static_cast<int32_t>(i * (kExperts / kTopK) + e / kTopK);
    }
    PlanProducts();
  }
  ExpertBatch(const ExpertBatch&) = delete;
  ExpertBatch& operator=(const ExpertBatch&) = delete;

  void Run() {
    Expand(true);
    team_.Run(contract_);
    SumSlots();
  }

  // Runs once, comparing what each step made.
  Status RunAndVerify() {
    Expand(false);
    for (const Product& product : expand_) MILLRACE_RETURN_IF_ERROR(VerifyProduct(product, "gate and up"));
    Run();
    for (const Product& product : contract_) MILLRACE_RETURN_IF_ERROR(VerifyProduct(product, "down"));
    float sum = 0;
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      if (slot_token_[static_cast<size_t>(slot)] == kTokens - 1)
        sum += down_rows_[static_cast<size_t>(slot * kHidden)];
    }
    return ExpectSameBits(out_[static_cast<size_t>((kTokens - 1) * kHidden)], sum,
                          "sum of a token's experts");
  }

  static double Operations() { return 2.0 * kSlots * 3 * kHidden * kWidth; }

 private:
  void PlanProducts();

  // Gate, up and, unless only those are wanted, their activation: one loop, cut as the forward pass cuts it.
  void Expand(bool activate) {
    if (fast_) token_codes_.Quantize(x_.data(), team_);
    const int64_t task_rows = std::max(kBlockRows, kernels::TaskRows(kWidth, kTokens, team_.size()));
    const auto tasks = static_cast<size_t>((kWidth + task_rows - 1) / task_rows);
    team_.pool().ParallelFor(kExperts * tasks, [&](size_t task, int worker) {
      const size_t e = task / tasks;
      const int64_t begin = static_cast<int64_t>(task % tasks) * task_rows;
      const int64_t end = std::min(begin + task_rows, kWidth);
      team_.RunRows(expand_[2 * e], begin, end, worker);
      team_.RunRows(expand_[2 * e + 1], begin, end, worker);
      const int64_t first = static_cast<int64_t>(e) * kTokensAnExpert;
      for (int64_t slot = first; activate && slot < first + kTokensAnExpert; ++slot) {
        float* gate = gate_rows_.data() + slot * kWidth + begin;
        kernels::SwiGlu(gate, up_rows_.data() + slot * kWidth + begin, end - begin, kSwiGluLimit,
                        kRoutingWeight, gate);
        for (int64_t row = begin; fast_ && row < end; row += kBlockRows)
          slot_codes_.QuantizeBlock(gate + row - begin, slot, row);
      }
    });
  }

  // Slots are ordered by expert, so that each token's come in rising order.
  void SumSlots() {
    team_.pool().ParallelFor(kTokens, [&](size_t t, int) {
      float* y = out_.data() + t * kHidden;
      std::fill_n(y, kHidden, 0.0f);
      for (size_t slot = 0; slot < kSlots; ++slot) {
        if (slot_token_[slot] != static_cast<int32_t>(t)) continue;
        const float* part = down_rows_.data() + slot * kHidden;
        for (int64_t d = 0; d < kHidden; ++d) y[d] += part[d];
      }
    });
  }

  bool fast_;
  Team& team_;
  MatrixCopies up_;  // gate and up of each stored expert
  MatrixCopies down_;
  kernels::AlignedVector<float> x_;  // [tokens, hidden]
  QuantizedBatch token_codes_;
  QuantizedBatch slot_codes_;
  std::vector<int32_t> slot_token_;  // by expert
  kernels::AlignedVector<float> gate_rows_, up_rows_, down_rows_;
  kernels::AlignedVector<float> out_;  // [tokens, hidden]
  std::vector<kernels::QuantizedRows> token_views_, slot_views_;
  std::vector<Product> expand_, contract_;
};

void ExpertBatch::PlanProducts() {
  token_views_.reserve(kExperts);
  slot_views_.reserve(kExperts);
  for (int64_t e = 0; e < kExperts; ++e) {
    const int64_t first = e * kTokensAnExpert;
    const int32_t* index = slot_token_.data() + first;
    token_views_.push_back(token_codes_.Rows(0, index));
    slot_views_.push_back(slot_codes_.Rows(first));
    Product product{.x = {.base = x_.data(), .stride = kHidden, .index = index},
                    .codes = fast_ ? &token_views_.back() : nullptr,
                    .n_tokens = kTokensAnExpert,
                    .y_stride = kWidth};
    product.a = &up_[2 * (e % kStored)];
    product.y = gate_rows_.data() + first * kWidth;
    expand_.push_back(product);
    product.a = &up_[2 * (e % kStored) + 1];
    product.y = up_rows_.data() + first * kWidth;
    expand_.push_back(product);
    contract_.push_back({.a = &down_[e % kStored],
                         .x = {.base = gate_rows_.data() + first * kWidth, .stride = kWidth},
                         .codes = fast_ ? &slot_views_.back() : nullptr,
                         .n_tokens = kTokensAnExpert,
                         .y = down_rows_.data() + first * kHidden,
                         .y_stride = kHidden});
  }
}

Result<BenchRow> Measure(KernelBench& bench, bool fast) {
  ExpertBatch batch(fast, bench.team);
  MILLRACE_RETURN_IF_ERROR(batch.RunAndVerify());
  const Contestant contestants[] = {
      {.run = [&] { batch.Run(); }, .work = ExpertBatch::Operations(), .team = &bench.team},
      bench.limits.Floats(bench.team)};
  BenchRow row{.name = "experts-prefill",
               .shape = fmt::format("fp4 {} -> {} -> {}, {} x {} tokens", kHidden, kWidth, kHidden, kExperts,
                                    kTokensAnExpert),
               .numerics = fast ? "fast" : "reference",
               .instruction_set = fast ? kernels::Int8InstructionSet() : kernels::FloatInstructionSet(),
               .threads = bench.team.size(),
               .unit = "GFLOP/s",
               .limit_name = "multiply-add peak"};
  row.Take(TimeInTurn(contestants), 1e9);
  return row;
}

}  // namespace

Result<std::vector<BenchRow>> ExpertsInPrefill(KernelBench& bench) {
  std::vector<BenchRow> rows;
  for (const bool fast : {false, true}) {
    MILLRACE_ASSIGN_OR_RETURN(BenchRow row, Measure(bench, fast));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace millrace::rig
