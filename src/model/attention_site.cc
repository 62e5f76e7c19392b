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
  bool RoundsQueryInput() const;
  void ProjectInput();
  void FillWindow();
  void ProjectQueries();
  void QuantiseIndexQuery(int64_t t, WorkerScratch& worker);
  void Attend();
  kernels::AttentionQuery QueryOf(int64_t t, int64_t slot) const;
  void FindSelected(int64_t t, int64_t slot, int64_t begin, int64_t end) const;
  void AttendTogether();
  void UnrotateHeads(int64_t t, int64_t begin, int64_t end) const;
  void ProjectOutput();
  void KeepTails();
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

// Whether the queries' low-rank rows are rounded in their own place.
bool AttentionSite::RoundsQueryInput() const {
  return ctx_.Rounds(weights_.wq_b) && (!role_.owns_index || ctx_.Rounds(weights_.indexer.wq_b));
}

// Everything that is a projection of the site's input, in one loop. What only queries need is made for the
// tokens that the layer keeps. Nothing is rounded: what is stored and selected hangs on these products, which
// are a twentieth of all with fp8 matrices.
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
// (and rounds) the queries' low-rank rows in passing.
void AttentionSite::FillWindow() {
  const std::span<const BatchLayout::Item> items = ctx_.batch.items();
  const std::span<uint8_t> all_codes = ctx_.scratch.window_codes;
  const std::span<uint8_t> all_scales = ctx_.scratch.window_scales;
  const int64_t pairs = ctx_.main_rope.pairs();
  const int64_t rank = ctx_.config().q_lora_rank;
  const bool rounds_query_input = RoundsQueryInput();
  const auto bring = [&](const BatchLayout::Item& item) {
    for (int64_t position = ctx_.batch.FirstEarlierEntry(item); position < item.start; ++position) {
      const int64_t row = ctx_.batch.WindowRow(item, position);
      std::copy_n(item.state->window_codes(layer_, position), dim_, all_codes.data() + row * dim_);
      std::copy_n(item.state->window_scales(layer_, position), dim_ / 32,
                  all_scales.data() + row * (dim_ / 32));
    }
  };
  const auto make = [&](int64_t t) {
    if (t < ctx_.batch.n_kept()) {
      float* c = ctx_.scratch.q_lora.data() + t * rank;
      kernels::RmsNorm(c, weights_.q_norm.data(), rank, eps_, c);
      if (rounds_query_input) kernels::RoundInputs(c, 0, rank, c);
    }
    float* kv = ctx_.scratch.kv.data() + t * dim_;
    kernels::RmsNorm(kv, weights_.kv_norm.data(), dim_, eps_, kv);
    kernels::Rotate(kv + dim_ - 2 * pairs, ctx_.Cos(role_, t), ctx_.Sin(role_, t), pairs);
    uint8_t* codes = all_codes.data() + ctx_.batch.WindowRow(t) * dim_;
    uint8_t* scales = all_scales.data() + ctx_.batch.WindowRow(t) * (dim_ / 32);
    kernels::QuantizeQ8(kv, dim_, codes, scales);
    if (ctx_.trace != nullptr) kernels::DequantizeQ8(codes, scales, dim_, kv);
  };
  ctx_.pool.ParallelFor(items.size() + static_cast<size_t>(ctx_.batch.n_tokens()), [&](size_t task, int) {
    if (task < items.size()) {
      bring(items[task]);
    } else {
      make(static_cast<int64_t>(task - items.size()));
    }
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
  MatMulJob jobs[2];
  size_t n = 0;
  jobs[n++] = ctx_.BatchJob(weights_.wq_b, s.q_lora, s.heads);
  if (role_.owns_index) jobs[n++] = ctx_.BatchJob(weights_.indexer.wq_b, s.q_lora, s.index_q);
  for (MatMulJob& job : std::span(jobs, n)) {
    if (RoundsQueryInput()) job = ctx_.OfRounded(job);
  }
  ctx_.RunMatMuls(std::span(jobs, n));
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

// The attention of token t, which keeps what it needs in `slot` of the scratch.
kernels::AttentionQuery AttentionSite::QueryOf(int64_t t, int64_t slot) const {
  const formats::ModelConfig& config = ctx_.config();
  const ForwardScratch& s = ctx_.scratch;
  const int64_t n_window =
      std::min(ctx_.batch.tokens()[static_cast<size_t>(t)].position + 1, config.sliding_window);
  const int64_t first_row = ctx_.batch.WindowRow(t) - n_window + 1;
  const int64_t stride = kernels::AttentionStride(config.sliding_window + config.index_topk);
  return {.n_heads = n_heads_,
          .head_dim = dim_,
          .rows = {.window_codes = s.window_codes.data() + first_row * dim_,
                   .window_scales = s.window_scales.data() + first_row * (dim_ / 32),
                   .n_window = n_window,
                   .selected = s.selected_rows.data() + slot * config.index_topk,
                   .n_selected = role_.ratio > 0 ? s.n_selected[static_cast<size_t>(t)] : 0},
          .q = HeadsOf(t),
          .sinks = weights_.attn_sink.data(),
          .scale = 1.0f / std::sqrt(static_cast<float>(dim_)),
          .weights = s.attention_weights.data() + slot * n_heads_ * stride,
          .denominators = s.attention_denominators.data() + slot * n_heads_,
          .out = HeadsOf(t)};
}

// Looks up where the selected entries begin .. end - 1 of token t are.
void AttentionSite::FindSelected(int64_t t, int64_t slot, int64_t begin, int64_t end) const {
  const SequenceState& state = *ctx_.batch.ItemOf(ctx_.batch.tokens()[static_cast<size_t>(t)]).state;
  const int64_t topk = ctx_.config().index_topk;
  const int32_t* selected = ctx_.scratch.selected.data() + t * topk;
  kernels::LatentRow* rows = ctx_.scratch.selected_rows.data() + slot * topk;
  for (int64_t i = begin; i < end; ++i) {
    const EntryRef entry = state.Entry(ctx_.pages, *role_.kv_source, selected[i]);
    rows[i] = {.codes = entry.latent_codes, .scales = entry.latent_scales};
  }
}

void AttentionSite::UnrotateHeads(int64_t t, int64_t begin, int64_t end) const {
  const int64_t pairs = ctx_.main_rope.pairs();
  for (int64_t h = begin + 1; h <= end; ++h)
    kernels::RotateBack(HeadsOf(t) + h * dim_ - 2 * pairs, ctx_.Cos(role_, t), ctx_.Sin(role_, t), pairs);
}

void AttentionSite::Attend() {
  // Slots are for tokens at work: a thread has one for all of its tokens, or each token one for all threads.
  if (ctx_.batch.n_tokens() <= static_cast<int64_t>(ctx_.scratch.attention_slots)) return AttendTogether();
  ctx_.pool.ParallelFor(static_cast<size_t>(ctx_.batch.n_tokens()), [&](size_t token, int worker) {
    const auto t = static_cast<int64_t>(token);
    const kernels::AttentionQuery query = QueryOf(t, worker);
    FindSelected(t, worker, 0, query.rows.n_selected);
    kernels::SparseAttention(query, ctx_.scratch.workers[static_cast<size_t>(worker)].attention);
    UnrotateHeads(t, 0, n_heads_);
  });
}

// Few tokens: all threads work on each. First on its rows, then on its heads, then on channels of its
// outputs, so that every thread decodes other rows or other parts of rows.
void AttentionSite::AttendTogether() {
  const int64_t n_tokens = ctx_.batch.n_tokens();
  const int64_t n_threads = ctx_.pool.size();
  const auto tile_of = [&](int worker) {
    return ctx_.scratch.workers[static_cast<size_t>(worker)].attention;
  };
  // Runs fn(t, part, worker) for every part of every token.
  const auto share = [&](int64_t parts, const auto& fn) {
    ctx_.pool.ParallelFor(static_cast<size_t>(n_tokens * parts), [&](size_t task, int worker) {
      fn(static_cast<int64_t>(task) / parts, static_cast<int64_t>(task) % parts, worker);
    });
  };
  const auto parts_of = [](int64_t n, int64_t size) { return (n + size - 1) / size; };

  const int64_t max_rows = ctx_.config().sliding_window + (role_.ratio > 0 ? ctx_.config().index_topk : 0);
  const int64_t rows_a_part = n_threads > 8 ? 2 * kernels::kLogitRows : 8 * kernels::kLogitRows;
  share(parts_of(max_rows, rows_a_part), [&](int64_t t, int64_t part, int worker) {
    const kernels::AttentionQuery query = QueryOf(t, t);
    const int64_t begin = part * rows_a_part;
    const int64_t end = std::min(begin + rows_a_part, query.rows.n());
    if (begin >= end) return;
    FindSelected(t, t, std::max<int64_t>(0, begin - query.rows.n_window), end - query.rows.n_window);
    kernels::AttentionLogits(query, begin, end, tile_of(worker));
  });

  constexpr int64_t kHeadsAPart = 8;
  share(parts_of(n_heads_, kHeadsAPart), [&](int64_t t, int64_t part, int) {
    const int64_t begin = part * kHeadsAPart;
    kernels::AttentionWeights(QueryOf(t, t), begin, std::min(begin + kHeadsAPart, n_heads_));
  });

  // The last slice of channels is the one with the rotated ones.
  const int64_t n_rotated = 2 * ctx_.main_rope.pairs();
  const int64_t slices = (dim_ - n_rotated) / kernels::kOutputChannels + 1;
  const int64_t heads_a_part = n_threads > slices ? kHeadsAPart : n_heads_;
  share(slices * parts_of(n_heads_, heads_a_part), [&](int64_t t, int64_t part, int worker) {
    const int64_t slice = part % slices;
    const int64_t head = part / slices * heads_a_part;
    const int64_t head_end = std::min(head + heads_a_part, n_heads_);
    const int64_t begin = slice * kernels::kOutputChannels;
    const int64_t end = slice == slices - 1 ? dim_ : begin + kernels::kOutputChannels;
    kernels::AttentionOutputs(QueryOf(t, t), begin, end, head, head_end, tile_of(worker));
    if (slice == slices - 1) UnrotateHeads(t, head, head_end);
  });
}

void AttentionSite::ProjectOutput() {
  const ForwardScratch& s = ctx_.scratch;
  const int64_t groups = ctx_.config().o_groups;
  const int64_t rank = ctx_.config().o_lora_rank;
  const int64_t cols = weights_.wo_a.cols;
  const bool rounds_heads = ctx_.Rounds(weights_.wo_a);
  if (rounds_heads) {
    ctx_.pool.ParallelFor(static_cast<size_t>(ctx_.batch.n_tokens() * groups), [&](size_t task, int) {
      float* const group = s.heads.data() + static_cast<int64_t>(task) * cols;
      kernels::RoundInputs(group, 0, cols, group);
    });
  }
  // Group g reads its own heads and fills its own rows: jobs of one loop.
  const std::span<MatMulJob> jobs = s.jobs.first(static_cast<size_t>(groups));
  for (int64_t g = 0; g < groups; ++g) {
    MatMulJob& job = jobs[static_cast<size_t>(g)];
    job = ctx_.BatchJob(weights_.wo_a, s.heads, s.o_lora);
    job.x = {.base = s.heads.data() + g * cols, .stride = n_heads_ * dim_};
    if (rounds_heads) job = ctx_.OfRounded(job);
    job.row_begin = g * rank;
    job.row_end = (g + 1) * rank;
  }
  ctx_.RunMatMuls(jobs);
  MatMulJob job = ctx_.BatchJob(weights_.wo_b, s.o_lora, s.site_out);
  if (ctx_.Rounds(weights_.wo_b)) {
    ctx_.ForEachToken([&](int64_t t, WorkerScratch&) {
      float* const rows = s.o_lora.data() + t * groups * rank;
      kernels::RoundInputs(rows, 0, groups * rank, rows);
    });
    job = ctx_.OfRounded(job);
  }
  ctx_.RunMatMuls({job});
}

// Copies the window behind a tail's tokens out of the batch's rows and, where it began before the call, the
// sequence's ring. Late layers have left out what a tail inside a prompt would need.
void AttentionSite::KeepTails() {
  const int64_t window = ctx_.config().sliding_window;
  const WindowLayout layout(ctx_.plan);
  const auto keep = [&](const BatchLayout::Item& item, const TailRequest& tail) {
    if (layer_ > ctx_.plan.first_late_layer() && tail.length < item.results_from) return;
    auto* const rings = reinterpret_cast<uint8_t*>(tail.rings.data());
    for (int64_t p = std::max<int64_t>(0, tail.length - (window - 1)); p < tail.length; ++p) {
      const int64_t row = ctx_.batch.WindowRow(item, p);
      const bool earlier = p < item.call_start;
      const uint8_t* codes =
          earlier ? item.state->window_codes(layer_, p) : ctx_.scratch.window_codes.data() + row * dim_;
      const uint8_t* scales = earlier ? item.state->window_scales(layer_, p)
                                      : ctx_.scratch.window_scales.data() + row * (dim_ / 32);
      std::copy_n(codes, dim_, rings + layout.codes(layer_, p));
      std::copy_n(scales, dim_ / 32, rings + layout.scales(layer_, p));
    }
  };
  for (const BatchLayout::Item& item : ctx_.batch.items()) {
    for (const TailRequest& tail : item.tails) keep(item, tail);
  }
}

// The ring takes the batch's last rows; what is older than the window is never read again.
void AttentionSite::KeepWindow() {
  const int64_t window = ctx_.config().sliding_window;
  for (const BatchLayout::Item& item : ctx_.batch.items()) {
    for (int64_t i = std::max<int64_t>(0, item.n_tokens - window); i < item.n_tokens; ++i) {
      const int64_t t = item.first_token + i;
      const int64_t row = ctx_.batch.WindowRow(t);
      std::copy_n(ctx_.scratch.window_codes.data() + row * dim_, dim_,
                  item.state->window_codes(layer_, item.start + i));
      std::copy_n(ctx_.scratch.window_scales.data() + row * (dim_ / 32), dim_ / 32,
                  item.state->window_scales(layer_, item.start + i));
    }
  }
}

void AttentionSite::Run() {
  ProjectInput();
  FillWindow();
  KeepTails();
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
