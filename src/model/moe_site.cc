#include <algorithm>

#include "kernels/matmul_int8.h"
#include "kernels/router.h"
#include "kernels/swiglu.h"
#include "model/sites.h"

namespace millrace::model {
namespace {

constexpr int64_t kBlockRows = 32;  // that are rounded to 8 bits together; every task takes a multiple

// One layer's mixture of experts over the running batch (shared/spec/v41-text.md, section 5.6). Tokens are
// grouped by expert, so that each expert's weights are read once for all its tokens.
class MoeSite {
 public:
  MoeSite(const ForwardContext& ctx, int l)
      : ctx_(ctx),
        layer_(l),
        weights_(ctx.weights.layer(static_cast<size_t>(l))),
        n_experts_(ctx.config().n_routed_experts),
        top_k_(ctx.config().num_experts_per_tok),
        width_(ctx.config().moe_intermediate_size),
        hidden_(ctx.config().hidden_size),
        n_slots_(ctx.batch.n_tokens() * top_k_),
        fast_(ctx.numerics == Numerics::kFast),
        rounds_shared_(ctx.Rounds(weights_.shared.w1) && ctx.Rounds(weights_.shared.w3)) {}

  void Run();

 private:
  void Route();
  void GroupByExpert();
  void ExpandTokens();
  void ExpandRows(const ExpertTokens& expansion, int64_t begin, int64_t end, WorkerScratch& worker) const;
  void Contract();
  void SumSlots();

  const ForwardContext& ctx_;
  int layer_;
  const LayerWeights& weights_;
  int64_t n_experts_;
  int64_t top_k_;
  int64_t width_;
  int64_t hidden_;
  int64_t n_slots_;  // routed slots; the shared expert's rows follow them
  bool fast_;
  bool rounds_shared_;  // the input of the shared expert's w1 and w3
};

void MoeSite::Route() {
  const ForwardScratch& s = ctx_.scratch;
  ctx_.RunMatMuls({ctx_.BatchJob(weights_.gate, s.site_in, s.router_scores)});
  ctx_.ForEachToken([&](int64_t t, WorkerScratch&) {
    float* scores = s.router_scores.data() + t * n_experts_;
    kernels::RouterScores(scores, n_experts_, static_cast<float>(ctx_.config().gate_temp));
    kernels::ChooseExperts(scores, weights_.gate_bias.data(), n_experts_, top_k_,
                           static_cast<float>(ctx_.config().routed_scaling_factor),
                           s.experts.data() + t * top_k_, s.expert_weights.data() + t * top_k_);
    if (fast_) {
      kernels::QuantizeInt8(s.site_in.data() + t * hidden_, hidden_,
                            s.site_groups.data() + t * kernels::QuantizedGroups(hidden_));
    }
    if (rounds_shared_) {
      const int64_t at = t * hidden_;
      kernels::RoundInputs(s.site_in.data() + at, 0, hidden_, s.site_rounded.data() + at);
    }
  });
  ctx_.Trace(layer_, "router_scores", s.router_scores, {ctx_.batch.n_tokens(), n_experts_});
  ctx_.Trace(layer_, "router_w", s.expert_weights, {ctx_.batch.n_tokens(), top_k_});
  if (ctx_.trace != nullptr) {
    const std::vector<int64_t> experts(s.experts.begin(), s.experts.begin() + n_slots_);
    const int64_t shape[] = {ctx_.batch.n_tokens(), top_k_};
    ctx_.trace->OnIntegers(fmt::format("L{}.router_idx", layer_), experts, shape);
  }
}

// A counting sort of the slots by expert; within one expert by token. Each token's slots come out in rising
// expert order, which is the order they are summed in.
void MoeSite::GroupByExpert() {
  const ForwardScratch& s = ctx_.scratch;
  const int64_t n_tokens = ctx_.batch.n_tokens();
  std::fill(s.expert_first.begin(), s.expert_first.end(), 0);
  for (int64_t i = 0; i < n_slots_; ++i)
    ++s.expert_first[static_cast<size_t>(s.experts[static_cast<size_t>(i)]) + 1];
  for (size_t e = 1; e < s.expert_first.size(); ++e) s.expert_first[e] += s.expert_first[e - 1];
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t i = t * top_k_; i < (t + 1) * top_k_; ++i) {
      int32_t& next = s.expert_first[static_cast<size_t>(s.experts[static_cast<size_t>(i)])];
      s.slot_token[static_cast<size_t>(next)] = static_cast<int32_t>(t);
      s.slot_weight[static_cast<size_t>(next)] = s.expert_weights[static_cast<size_t>(i)];
      s.token_slots[static_cast<size_t>(i)] = next++;
    }
    std::sort(s.token_slots.begin() + t * top_k_, s.token_slots.begin() + (t + 1) * top_k_);
  }
  // Filling moved each first to the next expert's; move them back.
  std::copy_backward(s.expert_first.begin(), s.expert_first.end() - 1, s.expert_first.end());
  s.expert_first[0] = 0;
}

// Gate, up and their activation of every expert that has tokens, and of the shared one.
void MoeSite::ExpandTokens() {
  const ForwardScratch& s = ctx_.scratch;
  const std::span<ExpertTokens> expansions = s.expert_tokens;
  size_t n = 0;
  for (int64_t e = 0; e < n_experts_; ++e) {
    const int64_t first = s.expert_first[static_cast<size_t>(e)];
    const int64_t count = s.expert_first[static_cast<size_t>(e) + 1] - first;
    if (count == 0) continue;
    expansions[n++] = {.expert = &weights_.experts[static_cast<size_t>(e)],
                       .index = s.slot_token.data() + first,
                       .first = first,
                       .n_tokens = count,
                       .routed = true};
  }
  expansions[n++] = {.expert = &weights_.shared, .first = n_slots_, .n_tokens = ctx_.batch.n_tokens()};
  const int64_t task_rows =
      std::max(kBlockRows, kernels::TaskRows(width_, ctx_.batch.n_tokens(), ctx_.pool.size()));
  const int64_t tasks = (width_ + task_rows - 1) / task_rows;
  ctx_.pool.ParallelFor(n * static_cast<size_t>(tasks), [&](size_t task, int worker) {
    const auto begin = static_cast<int64_t>(task) % tasks * task_rows;
    ExpandRows(expansions[task / static_cast<size_t>(tasks)], begin, std::min(begin + task_rows, width_),
               s.workers[static_cast<size_t>(worker)]);
  });
}

// Rows [begin, end) of one expert's gate and up, then of their product. The routing weight multiplies before
// w2; the shared expert's is 1.
void MoeSite::ExpandRows(const ExpertTokens& expansion, int64_t begin, int64_t end,
                         WorkerScratch& worker) const {
  const ForwardScratch& s = ctx_.scratch;
  float* gate = s.gate_rows.data() + expansion.first * width_;
  float* up = s.up_rows.data() + expansion.first * width_;
  MatMulJob job{.x = {.base = s.site_in.data(), .stride = hidden_, .index = expansion.index},
                .n_tokens = expansion.n_tokens,
                .y_stride = width_};
  if (fast_ && expansion.routed)
    job.quantized = {.base = s.site_groups.data(), .cols = hidden_, .index = expansion.index};
  if (rounds_shared_ && !expansion.routed) job = ctx_.OfRounded(job, s.site_rounded.data());
  job.a = &expansion.expert->w1;
  job.y = gate;
  MultiplyRows(job, begin, end, worker);
  job.a = &expansion.expert->w3;
  job.y = up;
  MultiplyRows(job, begin, end, worker);
  const auto limit = static_cast<float>(ctx_.config().swiglu_limit);
  for (int64_t t = 0; t < expansion.n_tokens; ++t) {
    const int64_t slot = expansion.first + t;
    float* product = gate + t * width_;
    kernels::SwiGlu(product + begin, up + t * width_ + begin, end - begin, limit,
                    expansion.routed ? s.slot_weight[static_cast<size_t>(slot)] : 1.0f, product + begin);
    if (!fast_) continue;
    if (!expansion.routed) {
      kernels::RoundInputs(product, begin, end, s.shared_rounded.data() + t * width_);
      continue;
    }
    kernels::QuantizedGroup* groups = s.slot_groups.data() + slot * kernels::QuantizedGroups(width_);
    for (int64_t row = begin; row < end; row += kBlockRows)
      kernels::QuantizeInt8Block(product + row, groups[row / 128], row / kBlockRows % 4);
  }
}

void MoeSite::Contract() {
  const ForwardScratch& s = ctx_.scratch;
  size_t n = 0;
  const auto add = [&](const kernels::WeightMatrix& a, int64_t first, int64_t count, bool routed) {
    s.jobs[n++] = {.a = &a,
                   .x = {.base = s.gate_rows.data() + first * width_, .stride = width_},
                   .n_tokens = count,
                   .y = s.down_rows.data() + first * hidden_,
                   .y_stride = hidden_,
                   .row_begin = 0,
                   .row_end = a.rows};
    if (fast_ && routed) {
      s.jobs[n - 1].quantized = {.base = s.slot_groups.data() + first * kernels::QuantizedGroups(width_),
                                 .cols = width_};
    }
  };
  for (int64_t e = 0; e < n_experts_; ++e) {
    const int64_t first = s.expert_first[static_cast<size_t>(e)];
    const int64_t count = s.expert_first[static_cast<size_t>(e) + 1] - first;
    if (count > 0) add(weights_.experts[static_cast<size_t>(e)].w2, first, count, true);
  }
  add(weights_.shared.w2, n_slots_, ctx_.batch.n_tokens(), false);
  if (ctx_.Rounds(weights_.shared.w2)) s.jobs[n - 1] = ctx_.OfRounded(s.jobs[n - 1], s.shared_rounded.data());
  ctx_.RunMatMuls(s.jobs.first(n));
}

// Routed experts in rising order, the shared one last: the same order in every batch.
void MoeSite::SumSlots() {
  const ForwardScratch& s = ctx_.scratch;
  ctx_.ForEachToken([&](int64_t t, WorkerScratch&) {
    float* y = s.site_out.data() + t * hidden_;
    const auto row = [&](int64_t slot) { return s.down_rows.data() + slot * hidden_; };
    std::copy_n(row(s.token_slots[static_cast<size_t>(t * top_k_)]), hidden_, y);
    for (int64_t i = 1; i < top_k_; ++i) {
      const float* part = row(s.token_slots[static_cast<size_t>(t * top_k_ + i)]);
      for (int64_t d = 0; d < hidden_; ++d) y[d] += part[d];
    }
    const float* shared = row(n_slots_ + t);
    for (int64_t d = 0; d < hidden_; ++d) y[d] += shared[d];
  });
}

void MoeSite::Run() {
  Route();
  GroupByExpert();
  ExpandTokens();
  Contract();
  SumSlots();
}

}  // namespace

void RunMoe(const ForwardContext& ctx, int l) {
  MoeSite(ctx, l).Run();
}

}  // namespace millrace::model
