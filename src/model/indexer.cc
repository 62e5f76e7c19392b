#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/index_score.h"
#include "kernels/quantize.h"
#include "model/sites.h"

namespace millrace::model {
namespace {

// What one token may choose from.
struct Visible {
  int64_t entries = 0;              // n(p)
  int64_t n_blocks = 0;             // candidate blocks it searches
  const int32_t* blocks = nullptr;  // their numbers, ascending; null: 0 .. n_blocks - 1
};

// Scores and selects for one index source of the running batch.
class Selector {
 public:
  Selector(const ForwardContext& ctx, int l)
      : ctx_(ctx),
        role_(ctx.plan.layers[static_cast<size_t>(l)]),
        layer_(l),
        block_(ctx.config().candidate_block_size) {}

  void Run();

 private:
  const BatchLayout::Token& TokenAt(int64_t t) const { return ctx_.batch.tokens()[static_cast<size_t>(t)]; }
  Visible VisibleTo(int64_t t) const;
  // True when every visible entry (and block) is chosen, whatever the scores.
  bool TakesAll(const Visible& visible) const;
  void TakeAll(int64_t t, const Visible& visible);
  // Scores `ids` for token t: scores[i].
  void Score(int64_t t, std::span<const int32_t> ids, WorkerScratch& worker, std::span<float> scores) const;
  void SearchSlice(int64_t t, const Visible& visible, int64_t begin, int64_t end, WorkerScratch& worker,
                   SelectionScratch& found) const;
  void Keep(int64_t t, std::span<SelectionScratch> slices);
  void TraceScores() const;
  void TraceSets() const;

  const ForwardContext& ctx_;
  const LayerRole& role_;
  int layer_;
  int64_t block_;
};

Visible Selector::VisibleTo(int64_t t) const {
  Visible visible;
  visible.entries = (TokenAt(t).position + 1) / role_.ratio;
  visible.n_blocks = (visible.entries + block_ - 1) / block_;
  if (role_.uses_candidates) {
    visible.n_blocks = ctx_.scratch.n_candidates[static_cast<size_t>(t)];
    visible.blocks = ctx_.scratch.candidates.data() + t * ctx_.config().candidate_topk_blocks;
  }
  return visible;
}

bool Selector::TakesAll(const Visible& visible) const {
  if (visible.entries > ctx_.config().index_topk) return false;
  const int64_t all_blocks = (visible.entries + block_ - 1) / block_;
  return all_blocks <= ctx_.config().candidate_topk_blocks;
}

void Selector::TakeAll(int64_t t, const Visible& visible) {
  int32_t* selected = ctx_.scratch.selected.data() + t * ctx_.config().index_topk;
  for (int64_t j = 0; j < visible.entries; ++j) selected[j] = static_cast<int32_t>(j);
  ctx_.scratch.n_selected[static_cast<size_t>(t)] = static_cast<int32_t>(visible.entries);
  if (!role_.publishes_candidates) return;
  int32_t* candidates = ctx_.scratch.candidates.data() + t * ctx_.config().candidate_topk_blocks;
  for (int64_t b = 0; b < visible.n_blocks; ++b) candidates[b] = static_cast<int32_t>(b);
  ctx_.scratch.n_candidates[static_cast<size_t>(t)] = static_cast<int32_t>(visible.n_blocks);
}

void Selector::Score(int64_t t, std::span<const int32_t> ids, WorkerScratch& worker,
                     std::span<float> scores) const {
  const formats::ModelConfig& config = ctx_.config();
  const SequenceState& state = *ctx_.batch.ItemOf(TokenAt(t)).state;
  for (size_t i = 0; i < ids.size(); ++i) {
    const EntryRef entry = state.Entry(ctx_.pages, *role_.kv_source, ids[i]);
    kernels::DequantizeQ4a(entry.key_codes, entry.key_scales, config.index_head_dim,
                           worker.index_keys.data() + static_cast<int64_t>(i) * config.index_head_dim);
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(config.index_head_dim));
  kernels::IndexScores(ctx_.scratch.index_q.data() + t * config.index_n_heads * config.index_head_dim,
                       ctx_.scratch.index_weights.data() + t * config.index_n_heads, config.index_n_heads,
                       config.index_head_dim, worker.index_keys.data(), static_cast<int64_t>(ids.size()),
                       scale, scores.data());
}

// Searches blocks [begin, end) of the visible ones.
void Selector::SearchSlice(int64_t t, const Visible& visible, int64_t begin, int64_t end,
                           WorkerScratch& worker, SelectionScratch& found) const {
  found.entries.Reset();
  found.blocks.Reset();
  const int64_t newest_block = (visible.entries - 1) / block_;
  const int64_t blocks_at_a_time = ctx_.scratch.index_block / block_;
  for (int64_t b0 = begin; b0 < end; b0 += blocks_at_a_time) {
    size_t n = 0;
    for (int64_t b = b0; b < std::min(end, b0 + blocks_at_a_time); ++b) {
      const int64_t block = visible.blocks != nullptr ? visible.blocks[b] : b;
      const int64_t last = std::min(visible.entries, (block + 1) * block_);
      for (int64_t j = block * block_; j < last; ++j) worker.index_ids[n++] = static_cast<int32_t>(j);
    }
    Score(t, worker.index_ids.first(n), worker, worker.index_scores);
    for (size_t i = 0; i < n; ++i) found.entries.Push(worker.index_scores[i], worker.index_ids[i]);
    if (!role_.publishes_candidates) continue;
    for (size_t i = 0; i < n;) {
      const int64_t block = worker.index_ids[i] / block_;
      float best = -std::numeric_limits<float>::infinity();
      for (; i < n && worker.index_ids[i] / block_ == block; ++i)
        best = std::max(best, worker.index_scores[i]);
      // The block of the newest visible entry is always a candidate.
      if (block == newest_block) best = std::numeric_limits<float>::infinity();
      found.blocks.Push(best, static_cast<int32_t>(block));
    }
  }
}

// Joins what the slices of token t found and stores its sets.
void Selector::Keep(int64_t t, std::span<SelectionScratch> slices) {
  for (const SelectionScratch& other : slices.subspan(1)) {
    slices[0].entries.Merge(other.entries);
    slices[0].blocks.Merge(other.blocks);
  }
  const auto store = [&](kernels::RunningTopK& top, std::span<int32_t> sets, int64_t width,
                         std::span<int32_t> counts) {
    const std::span<const kernels::Scored> best = top.Finish();
    for (size_t i = 0; i < best.size(); ++i) sets[static_cast<size_t>(t * width) + i] = best[i].index;
    counts[static_cast<size_t>(t)] = static_cast<int32_t>(best.size());
  };
  store(slices[0].entries, ctx_.scratch.selected, ctx_.config().index_topk, ctx_.scratch.n_selected);
  if (role_.publishes_candidates) {
    store(slices[0].blocks, ctx_.scratch.candidates, ctx_.config().candidate_topk_blocks,
          ctx_.scratch.n_candidates);
  }
}

void Selector::Run() {
  const int64_t n_tokens = ctx_.batch.n_tokens();
  // Few tokens: cut each one's entries into slices, so that all threads have work. The sets do not depend on
  // it.
  const int64_t n_slices = n_tokens >= ctx_.pool.size() ? 1 : ctx_.pool.size();
  const int64_t group = ctx_.scratch.selection_tasks / n_slices;
  for (int64_t t0 = 0; t0 < n_tokens; t0 += group) {
    const int64_t n = std::min(group, n_tokens - t0);
    ctx_.pool.ParallelFor(static_cast<size_t>(n * n_slices), [&](size_t task, int worker) {
      const int64_t t = t0 + static_cast<int64_t>(task) / n_slices;
      const int64_t slice = static_cast<int64_t>(task) % n_slices;
      const Visible visible = VisibleTo(t);
      if (TakesAll(visible)) return;
      SearchSlice(t, visible, visible.n_blocks * slice / n_slices, visible.n_blocks * (slice + 1) / n_slices,
                  ctx_.scratch.workers[static_cast<size_t>(worker)], ctx_.scratch.selections[task]);
    });
    ctx_.pool.ParallelFor(static_cast<size_t>(n), [&](size_t i, int) {
      const int64_t t = t0 + static_cast<int64_t>(i);
      const Visible visible = VisibleTo(t);
      if (TakesAll(visible)) {
        TakeAll(t, visible);
      } else {
        Keep(t, ctx_.scratch.selections.subspan(i * static_cast<size_t>(n_slices),
                                                static_cast<size_t>(n_slices)));
      }
    });
  }
  if (ctx_.trace != nullptr) {
    TraceScores();
    TraceSets();
  }
}

// All visible scores of every token as one matrix, minus infinity elsewhere. For traces only: this is the
// array that the search itself never forms.
void Selector::TraceScores() const {
  const int64_t n_tokens = ctx_.batch.n_tokens();
  int64_t width = 0;
  for (int64_t t = 0; t < n_tokens; ++t) width = std::max(width, (TokenAt(t).position + 1) / role_.ratio);
  std::vector<float> scores(static_cast<size_t>(n_tokens * width), -std::numeric_limits<float>::infinity());
  WorkerScratch& worker = ctx_.scratch.workers[0];
  for (int64_t t = 0; t < n_tokens; ++t) {
    const int64_t visible = (TokenAt(t).position + 1) / role_.ratio;
    for (int64_t j0 = 0; j0 < visible; j0 += ctx_.scratch.index_block) {
      const int64_t n = std::min(ctx_.scratch.index_block, visible - j0);
      for (int64_t i = 0; i < n; ++i) worker.index_ids[static_cast<size_t>(i)] = static_cast<int32_t>(j0 + i);
      Score(t, worker.index_ids.first(static_cast<size_t>(n)), worker,
            std::span(scores).subspan(static_cast<size_t>(t * width + j0), static_cast<size_t>(n)));
    }
  }
  ctx_.Trace(layer_, "index_scores", scores, {n_tokens, width});
}

void Selector::TraceSets() const {
  const int64_t n_tokens = ctx_.batch.n_tokens();
  int64_t entries = 0;
  for (int64_t t = 0; t < n_tokens; ++t) entries = std::max(entries, (TokenAt(t).position + 1) / role_.ratio);
  const int64_t topk = ctx_.config().index_topk;
  const int64_t width = std::min(topk, entries);
  std::vector<int64_t> sets(static_cast<size_t>(n_tokens * width), -1);
  for (int64_t t = 0; t < n_tokens; ++t) {
    std::copy_n(ctx_.scratch.selected.begin() + t * topk, ctx_.scratch.n_selected[static_cast<size_t>(t)],
                sets.begin() + t * width);
  }
  const int64_t shape[] = {n_tokens, width};
  ctx_.trace->OnIntegers(fmt::format("L{}.topk", layer_), sets, shape);
  if (!role_.publishes_candidates) return;
  const int64_t n_blocks = (entries + block_ - 1) / block_;
  std::vector<int64_t> kept(static_cast<size_t>(n_tokens * n_blocks), 0);
  for (int64_t t = 0; t < n_tokens; ++t) {
    const int32_t* blocks = ctx_.scratch.candidates.data() + t * ctx_.config().candidate_topk_blocks;
    for (int32_t i = 0; i < ctx_.scratch.n_candidates[static_cast<size_t>(t)]; ++i) {
      kept[static_cast<size_t>(t * n_blocks + blocks[i])] = 1;
    }
  }
  const int64_t block_shape[] = {n_tokens, n_blocks};
  ctx_.trace->OnIntegers(fmt::format("L{}.candidate_blocks", layer_), kept, block_shape);
}

}  // namespace

void SelectEntries(const ForwardContext& ctx, int l) {
  Selector(ctx, l).Run();
}

}  // namespace millrace::model
