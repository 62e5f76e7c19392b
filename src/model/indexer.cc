#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "kernels/index_score.h"
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
  kernels::IndexQuery QueryOf(int64_t t) const;
  std::span<const kernels::IndexKeys> KeysOf(int64_t t, const Visible& visible, int64_t b0, int64_t b1,
                                             WorkerScratch& worker) const;
  void Search(int64_t t, int64_t n_tokens, int64_t slice, int64_t n_slices, WorkerScratch& worker,
              SelectionScratch* found) const;
  void SearchTokens(int64_t begin, int64_t end, WorkerScratch& worker, SelectionScratch* found) const;
  void Note(const Visible& visible, int64_t b0, std::span<const float> scores, std::span<float> block_scores,
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

kernels::IndexQuery Selector::QueryOf(int64_t t) const {
  const formats::ModelConfig& config = ctx_.config();
  const size_t bytes = kernels::IndexQuery::BytesFor(config.index_n_heads, config.index_head_dim);
  return {ctx_.scratch.index_queries.subspan(static_cast<size_t>(t) * bytes, bytes), config.index_n_heads,
          config.index_head_dim};
}

// The keys of blocks [b0, b1) of those that token t may choose from, as runs within pages.
std::span<const kernels::IndexKeys> Selector::KeysOf(int64_t t, const Visible& visible, int64_t b0,
                                                     int64_t b1, WorkerScratch& worker) const {
  const SequenceState& state = *ctx_.batch.ItemOf(TokenAt(t)).state;
  const int64_t page_entries = ctx_.pages.sources[static_cast<size_t>(*role_.kv_source)].entries;
  size_t n = 0;
  const auto add = [&](int64_t first, int64_t last) {
    for (last = std::min(last, visible.entries); first < last;) {
      const int64_t end = std::min(last, (first / page_entries + 1) * page_entries);
      const EntryRef entry = state.Entry(ctx_.pages, *role_.kv_source, first);
      worker.index_runs[n++] = {.codes = entry.key_codes, .scales = entry.key_scales, .n = end - first};
      first = end;
    }
  };
  if (visible.blocks == nullptr) {
    add(b0 * block_, b1 * block_);
  } else {
    for (int64_t b = b0; b < b1; ++b) add(visible.blocks[b] * block_, (visible.blocks[b] + 1) * block_);
  }
  return worker.index_runs.first(n);
}

// Searches one slice of the blocks that tokens t .. t + n_tokens - 1 of one sequence may choose from; more
// than one token only where blocks are not restricted, so that all of them visit the same. found[i] is
// token t + i's.
void Selector::Search(int64_t t, int64_t n_tokens, int64_t slice, int64_t n_slices, WorkerScratch& worker,
                      SelectionScratch* found) const {
  std::array<kernels::IndexQuery, kSelectionGroup> queries;
  for (int64_t i = 0; i < n_tokens; ++i) {
    queries[static_cast<size_t>(i)] = QueryOf(t + i);
    found[i].entries.Reset();
    found[i].blocks.Reset();
  }
  const Visible widest = VisibleTo(t + n_tokens - 1);
  const int64_t end = widest.n_blocks * (slice + 1) / n_slices;
  const int64_t stride = ctx_.scratch.index_block;
  for (int64_t b0 = widest.n_blocks * slice / n_slices; b0 < end; b0 += stride / block_) {
    const std::span<const kernels::IndexKeys> keys =
        KeysOf(t, widest, b0, std::min(end, b0 + stride / block_), worker);
    kernels::IndexScores(std::span(queries).first(static_cast<size_t>(n_tokens)), keys,
                         worker.index_scores.data(), stride, worker.index_tile);
    int64_t n_scores = 0;
    for (const kernels::IndexKeys& run : keys) n_scores += run.n;
    for (int64_t i = 0; i < n_tokens; ++i) {
      const Visible visible = VisibleTo(t + i);
      // Earlier tokens of a group see fewer entries.
      const int64_t n =
          n_tokens == 1 ? n_scores : std::clamp<int64_t>(visible.entries - b0 * block_, 0, n_scores);
      Note(visible, b0, worker.index_scores.subspan(static_cast<size_t>(i * stride), static_cast<size_t>(n)),
           worker.index_blocks, found[i]);
    }
  }
}

// Takes in the scores of visible blocks b0, b0 + 1, ...; only the last of them, the newest, may be cut short.
void Selector::Note(const Visible& visible, int64_t b0, std::span<const float> scores,
                    std::span<float> block_scores, SelectionScratch& found) const {
  const auto block_at = [&](size_t b) {
    const int64_t at = b0 + static_cast<int64_t>(b);
    return visible.blocks != nullptr ? visible.blocks[at] : static_cast<int32_t>(at);
  };
  const auto size = static_cast<size_t>(block_);
  found.entries.PushAll(scores, [&](size_t i) {
    return static_cast<int32_t>(block_at(i / size) * block_ + static_cast<int64_t>(i % size));
  });
  if (!role_.publishes_candidates) return;
  size_t n_blocks = 0;
  for (size_t i = 0; i < scores.size(); i += size) {
    const std::span<const float> block = scores.subspan(i, std::min(size, scores.size() - i));
    float best = -std::numeric_limits<float>::infinity();
    for (const float score : block) best = std::max(best, score);
    // The block of the newest visible entry is always a candidate.
    if (block_at(n_blocks) == (visible.entries - 1) / block_) best = std::numeric_limits<float>::infinity();
    block_scores[n_blocks++] = best;
  }
  found.blocks.PushAll(block_scores.first(n_blocks), block_at);
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
    for (size_t i = 0; i < best.size(); ++i) sets[static_cast<size_t>(t * width) + i] = best[i].index();
    counts[static_cast<size_t>(t)] = static_cast<int32_t>(best.size());
  };
  store(slices[0].entries, ctx_.scratch.selected, ctx_.config().index_topk, ctx_.scratch.n_selected);
  if (role_.publishes_candidates) {
    store(slices[0].blocks, ctx_.scratch.candidates, ctx_.config().candidate_topk_blocks,
          ctx_.scratch.n_candidates);
  }
}

// Searches for tokens [begin, end) of the batch, as many together as visit the same entries. found[i] is
// token begin + i's.
void Selector::SearchTokens(int64_t begin, int64_t end, WorkerScratch& worker,
                            SelectionScratch* found) const {
  for (int64_t t = begin; t < end;) {
    int64_t n = 1;
    if (!TakesAll(VisibleTo(t))) {
      // Once a token cannot take all, the later ones of its sequence cannot either.
      while (!role_.uses_candidates && t + n < end && TokenAt(t + n).item == TokenAt(t).item) ++n;
      Search(t, n, 0, 1, worker, found + (t - begin));
    }
    t += n;
  }
}

void Selector::Run() {
  const int64_t n_tokens = ctx_.batch.n_tokens();
  const int64_t n_threads = ctx_.pool.size();
  const std::span<SelectionScratch> selections = ctx_.scratch.selections;
  // Few tokens: cut each one's entries into slices, so that all threads have work. Many: give a thread
  // several at a time. The sets depend on neither.
  const int64_t n_slices = n_tokens >= n_threads ? 1 : n_threads;
  const int64_t width = std::clamp<int64_t>(n_tokens / (2 * n_threads), 1, kSelectionGroup);
  const int64_t round = static_cast<int64_t>(selections.size()) / n_slices;
  for (int64_t t0 = 0; t0 < n_tokens; t0 += round) {
    const int64_t n = std::min(round, n_tokens - t0);
    const int64_t n_groups = (n + width - 1) / width;
    ctx_.pool.ParallelFor(static_cast<size_t>(n_groups * n_slices), [&](size_t task, int worker) {
      const int64_t group = static_cast<int64_t>(task) / n_slices;
      const int64_t slice = static_cast<int64_t>(task) % n_slices;
      WorkerScratch& scratch = ctx_.scratch.workers[static_cast<size_t>(worker)];
      if (n_slices == 1) {
        SearchTokens(t0 + group * width, t0 + std::min(n, (group + 1) * width), scratch,
                     &selections[static_cast<size_t>(group * width)]);
      } else if (!TakesAll(VisibleTo(t0 + group))) {
        Search(t0 + group, 1, slice, n_slices, scratch, &selections[task]);
      }
    });
    ctx_.pool.ParallelFor(static_cast<size_t>(n), [&](size_t i, int) {
      const int64_t t = t0 + static_cast<int64_t>(i);
      const Visible visible = VisibleTo(t);
      if (TakesAll(visible)) {
        TakeAll(t, visible);
      } else {
        Keep(t, selections.subspan(i * static_cast<size_t>(n_slices), static_cast<size_t>(n_slices)));
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
    Visible all;
    all.entries = (TokenAt(t).position + 1) / role_.ratio;
    const int64_t n_blocks = (all.entries + block_ - 1) / block_;
    const kernels::IndexQuery query = QueryOf(t);
    for (int64_t b0 = 0; b0 < n_blocks; b0 += ctx_.scratch.index_block / block_) {
      const int64_t b1 = std::min(n_blocks, b0 + ctx_.scratch.index_block / block_);
      kernels::IndexScores({&query, 1}, KeysOf(t, all, b0, b1, worker),
                           scores.data() + t * width + b0 * block_, width, worker.index_tile);
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
