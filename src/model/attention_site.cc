#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "kernels/quantize.h"
#include "kernels/rms_norm.h"
#include "model/sites.h"

namespace millrace::model {
namespace {

// One layer's attention over the running batch (shared/spec/v41-text.md, section 5.3).
class AttentionSite {
 public:
  AttentionSite(const ForwardContext& ctx, int l)
      : ctx_(ctx),
        layer_(l),
        role_(ctx.plan.layers[static_cast<size_t>(l)]),
        weights_(ctx.weights.layer(static_cast<size_t>(l))),
        dim_(ctx.config().head_dim),
        n_heads_(ctx.config().num_attention_heads),
        eps_(static_cast<float>(ctx.config().rms_norm_eps)) {}

  void Run();

 private:
  void ProjectInput();
  void FillWindow();
  void ProjectQueries();
  void QuantiseIndexQuery(int64_t t, WorkerScratch& worker);
  void Attend();
  void DecodeSelected(int64_t t, int64_t begin, int64_t end, float* rows) const;
  void AttendHeads(int64_t t, int64_t head, int64_t n, const float* selected_rows, WorkerScratch& worker);
  void ProjectOutput();
  void KeepWindow();

  float* HeadsOf(int64_t t) const { return ctx_.scratch.heads.data() + t * n_heads_ * dim_; }

  const ForwardContext& ctx_;
  int layer_;
  const LayerRole& role_;
  const LayerWeights& weights_;
  int64_t dim_;
  int64_t n_heads_;
  float eps_;
};

// Everything that is a projection of the site's input, in one loop. What only queries need is made for the
// tokens that the layer keeps.
void AttentionSite::ProjectInput() {
  const ForwardScratch& s = ctx_.scratch;
  MatMulJob jobs[5];
  size_t n = 0;
  jobs[n++] = ctx_.KeptJob(weights_.wq_a, s.site_in, s.q_lora);
  jobs[n++] = ctx_.BatchJob(weights_.wkv, s.site_in, s.kv);
  if (role_.owns_kv) {
    jobs[n++] = ctx_.BatchJob(weights_.compressor.wkv, s.site_in, s.compress_kv);
    if (role_.ratio > 1) jobs[n++] = ctx_.BatchJob(weights_.compressor.wgate, s.site_in, s.compress_gate);
  }
  if (role_.owns_index) jobs[n++] = ctx_.KeptJob(weights_.indexer.weights_proj, s.site_in, s.index_weights);
  ctx_.RunMatMuls(std::span(jobs, n));
}

// The rows a query may attend to in its window: those the sequences bring along, then the batch's own. Norms
// the queries' low-rank rows in passing.
void AttentionSite::FillWindow() {
  for (const BatchLayout::Item& item : ctx_.batch.items()) {
    const int64_t first = ctx_.batch.FirstEarlierEntry(item);
    ctx_.pool.ParallelFor(static_cast<size_t>(item.start - first), [&](size_t i, int) {
      const int64_t position = first + static_cast<int64_t>(i);
      kernels::DequantizeQ8(item.state->window_codes(layer_, position),
                            item.state->window_scales(layer_, position), dim_,
                            ctx_.scratch.window_rows.data() + ctx_.batch.WindowRow(item, position) * dim_);
    });
  }
  const int64_t pairs = ctx_.main_rope.pairs();
  const int64_t rank = ctx_.config().q_lora_rank;
  ctx_.ForEachToken([&](int64_t t, WorkerScratch&) {
    if (t < ctx_.batch.n_kept()) {
      float* c = ctx_.scratch.q_lora.data() + t * rank;
      kernels::RmsNorm(c, weights_.q_norm.data(), rank, eps_, c);
    }
    float* kv = ctx_.scratch.kv.data() + t * dim_;
    kernels::RmsNorm(kv, weights_.kv_norm.data(), dim_, eps_, kv);
    kernels::Rotate(kv + dim_ - 2 * pairs, ctx_.Cos(role_, t), ctx_.Sin(role_, t), pairs);
    uint8_t* codes = ctx_.scratch.kv_codes.data() + t * dim_;
    uint8_t* scales = ctx_.scratch.kv_scales.data() + t * (dim_ / 32);
    kernels::QuantizeQ8(kv, dim_, codes, scales);
    kernels::DequantizeQ8(codes, scales, dim_, kv);
    std::copy_n(kv, dim_, ctx_.scratch.window_rows.data() + ctx_.batch.WindowRow(t) * dim_);
  });
  ctx_.Trace(layer_, "window_kv", ctx_.scratch.kv, {ctx_.batch.n_tokens(), dim_});
}

// Rounds a token's index query and keeps it as the indexer reads it; index_q is then free, or for the trace.
void AttentionSite::QuantiseIndexQuery(int64_t t, WorkerScratch& worker) {
  const formats::ModelConfig& config = ctx_.config();
  const int64_t pairs = ctx_.compress_rope.pairs();
  const int64_t n_heads = config.index_n_heads;
  const int64_t dim = config.index_head_dim;
  float* q = ctx_.scratch.index_q.data() + t * n_heads * dim;
  auto* codes = reinterpret_cast<uint8_t*>(worker.row.data());
  uint8_t* scales = codes + n_heads * dim / 2;
  for (int64_t h = 1; h <= n_heads; ++h)
    kernels::Rotate(q + h * dim - 2 * pairs, ctx_.Cos(role_, t), ctx_.Sin(role_, t), pairs);
  kernels::QuantizeQ4a(q, n_heads * dim, codes, scales);
  if (ctx_.trace != nullptr) kernels::DequantizeQ4a(codes, scales, n_heads * dim, q);
  float* w = ctx_.scratch.index_weights.data() + t * n_heads;
  const float scale = 1.0f / std::sqrt(static_cast<float>(n_heads));
  for (int64_t h = 0; h < n_heads; ++h) w[h] *= scale;
  const size_t bytes = kernels::IndexQuery::BytesFor(n_heads, dim);
  kernels::IndexQuery query(ctx_.scratch.index_queries.subspan(static_cast<size_t>(t) * bytes, bytes),
                            n_heads, dim);
  query.Assign(codes, scales, w, 1.0f / std::sqrt(static_cast<float>(dim)));
}

void AttentionSite::ProjectQueries() {
  const ForwardScratch& s = ctx_.scratch;
  if (role_.owns_index) {
    ctx_.RunMatMuls({ctx_.BatchJob(weights_.wq_b, s.q_lora, s.heads),
                     ctx_.BatchJob(weights_.indexer.wq_b, s.q_lora, s.index_q)});
  } else {
    ctx_.RunMatMuls({ctx_.BatchJob(weights_.wq_b, s.q_lora, s.heads)});
  }
  const int64_t pairs = ctx_.main_rope.pairs();
  ctx_.ForEachToken([&](int64_t t, WorkerScratch& worker) {
    for (int64_t h = 0; h < n_heads_; ++h) {
      kernels::Rotate(HeadsOf(t) + (h + 1) * dim_ - 2 * pairs, ctx_.Cos(role_, t), ctx_.Sin(role_, t), pairs);
    }
    if (role_.owns_index) QuantiseIndexQuery(t, worker);
  });
  if (role_.owns_index) {
    ctx_.Trace(layer_, "index_q", s.index_q,
               {ctx_.batch.n_tokens(), ctx_.config().index_n_heads, ctx_.config().index_head_dim});
  }
}

void AttentionSite::DecodeSelected(int64_t t, int64_t begin, int64_t end, float* rows) const {
  const SequenceState& state = *ctx_.batch.ItemOf(ctx_.batch.tokens()[static_cast<size_t>(t)]).state;
  const int32_t* selected = ctx_.scratch.selected.data() + t * ctx_.config().index_topk;
  for (int64_t i = begin; i < end; ++i) {
    const EntryRef entry = state.Entry(ctx_.pages, *role_.kv_source, selected[i]);
    kernels::DequantizeQ4b(entry.latent_codes, entry.latent_scales, dim_, rows + i * dim_);
  }
}

void AttentionSite::AttendHeads(int64_t t, int64_t head, int64_t n, const float* selected_rows,
                                WorkerScratch& worker) {
  const BatchLayout::Token& token = ctx_.batch.tokens()[static_cast<size_t>(t)];
  kernels::AttentionRows rows;
  rows.n_window = std::min(token.position + 1, ctx_.config().sliding_window);
  rows.window = ctx_.scratch.window_rows.data() + (ctx_.batch.WindowRow(t) - rows.n_window + 1) * dim_;
  if (role_.ratio > 0) {
    rows.selected = selected_rows;
    rows.n_selected = ctx_.scratch.n_selected[static_cast<size_t>(t)];
  }
  float* q = HeadsOf(t) + head * dim_;
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim_));
  kernels::SparseAttention(q, n, dim_, rows, weights_.attn_sink.data() + head, scale, q, worker.attention);
  const int64_t pairs = ctx_.main_rope.pairs();
  for (int64_t h = 1; h <= n; ++h) {
    kernels::RotateBack(q + h * dim_ - 2 * pairs, ctx_.Cos(role_, t), ctx_.Sin(role_, t), pairs);
  }
}

// Groups of tokens: first their selected rows are decoded, then all heads read them. Both loops have more
// tasks than threads also for a single token.
void AttentionSite::Attend() {
  constexpr int64_t kRowsATask = 64;
  constexpr int64_t kHeadsATask = 16;
  const int64_t n_tokens = ctx_.batch.n_tokens();
  const int64_t group = ctx_.scratch.attention_group;
  const int64_t topk = ctx_.config().index_topk;
  const int64_t row_tasks = (topk + kRowsATask - 1) / kRowsATask;
  const int64_t head_tasks = (n_heads_ + kHeadsATask - 1) / kHeadsATask;
  for (int64_t t0 = 0; t0 < n_tokens; t0 += group) {
    const int64_t n = std::min(group, n_tokens - t0);
    const auto rows_of = [&](int64_t t) {
      return ctx_.scratch.selected_rows.data() + (t - t0) * topk * dim_;
    };
    if (role_.ratio > 0) {
      ctx_.pool.ParallelFor(static_cast<size_t>(n * row_tasks), [&](size_t task, int) {
        const int64_t t = t0 + static_cast<int64_t>(task) / row_tasks;
        const int64_t begin = static_cast<int64_t>(task) % row_tasks * kRowsATask;
        const int64_t end =
            std::min<int64_t>(begin + kRowsATask, ctx_.scratch.n_selected[static_cast<size_t>(t)]);
        DecodeSelected(t, begin, end, rows_of(t));
      });
    }
    ctx_.pool.ParallelFor(static_cast<size_t>(n * head_tasks), [&](size_t task, int worker) {
      const int64_t t = t0 + static_cast<int64_t>(task) / head_tasks;
      const int64_t head = static_cast<int64_t>(task) % head_tasks * kHeadsATask;
      AttendHeads(t, head, std::min(kHeadsATask, n_heads_ - head), rows_of(t),
                  ctx_.scratch.workers[static_cast<size_t>(worker)]);
    });
  }
}

void AttentionSite::ProjectOutput() {
  const ForwardScratch& s = ctx_.scratch;
  const int64_t groups = ctx_.config().o_groups;
  const int64_t rank = ctx_.config().o_lora_rank;
  // Group g reads its own heads and fills its own rows: jobs of one loop.
  const std::span<MatMulJob> jobs = s.jobs.first(static_cast<size_t>(groups));
  for (int64_t g = 0; g < groups; ++g) {
    MatMulJob& job = jobs[static_cast<size_t>(g)];
    job = ctx_.BatchJob(weights_.wo_a, s.heads, s.o_lora);
    job.x = {.base = s.heads.data() + g * weights_.wo_a.cols, .stride = n_heads_ * dim_};
    job.row_begin = g * rank;
    job.row_end = (g + 1) * rank;
  }
  ctx_.RunMatMuls(jobs);
  ctx_.RunMatMuls({ctx_.BatchJob(weights_.wo_b, s.o_lora, s.site_out)});
}

// The ring takes the batch's last rows; what is older than the window is never read again.
void AttentionSite::KeepWindow() {
  const int64_t window = ctx_.config().sliding_window;
  for (const BatchLayout::Item& item : ctx_.batch.items()) {
    for (int64_t i = std::max<int64_t>(0, item.n_tokens - window); i < item.n_tokens; ++i) {
      const int64_t t = item.first_token + i;
      std::copy_n(ctx_.scratch.kv_codes.data() + t * dim_, dim_,
                  item.state->window_codes(layer_, item.start + i));
      std::copy_n(ctx_.scratch.kv_scales.data() + t * (dim_ / 32), dim_ / 32,
                  item.state->window_scales(layer_, item.start + i));
    }
  }
}

void AttentionSite::Run() {
  ProjectInput();
  FillWindow();
  KeepWindow();
  if (role_.owns_kv) CompressEntries(ctx_, layer_);
  // What outlives the layer is stored. From here on it works only for tokens whose output is needed.
  ctx_.LeaveOut();
  if (ctx_.batch.n_tokens() == 0) return;
  ProjectQueries();
  if (role_.owns_index) SelectEntries(ctx_, layer_);
  Attend();
  ProjectOutput();
}

}  // namespace

void RunAttention(const ForwardContext& ctx, int l) {
  AttentionSite(ctx, l).Run();
}

}  // namespace millrace::model
