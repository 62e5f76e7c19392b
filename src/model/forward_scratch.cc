#include "model/forward_scratch.h"

#include <algorithm>
#include <memory>

#include "kernels/matmul.h"
#include "model/sequence_state.h"

namespace millrace::model {
namespace {

// The widest matrix of the backbone.
int64_t MaxColumns(const formats::ModelConfig& c) {
  const int64_t engram =
      c.engram_layer_ids.empty() ? 0 : (c.engram_max_ngram_size - 1) * c.engram_n_heads * c.engram_head_dim;
  return std::max({c.hc_mult * c.hidden_size, c.q_lora_rank, c.o_groups * c.o_lora_rank,
                   c.moe_intermediate_size, c.head_dim, c.num_attention_heads * c.head_dim / c.o_groups,
                   engram});
}

int64_t MinPageEntries(const LayerPlan& plan, int64_t page_tokens) {
  int64_t most = 1;
  for (const LayerRole& role : plan.layers) most = std::max<int64_t>(most, role.ratio);
  return page_tokens / most;
}

}  // namespace

ForwardScratch::ForwardScratch(const LayerPlan& plan, const ForwardOptions& options, int n_threads,
                               Arena& arena) {
  const formats::ModelConfig& c = plan.config;
  max_tokens = options.max_batch_tokens;
  const int64_t tokens = max_tokens;
  const int64_t m = c.hc_mult;
  const int64_t hidden = c.hidden_size;
  const int64_t dim = c.head_dim;
  const auto floats = [&](int64_t n) { return arena.Take<float>(n); };
  constexpr std::string_view kTokens = "max-num-batched-tokens";
  constexpr std::string_view kThreads = "threads";

  arena.Begin("scratch, activations", kTokens);
  streams = floats(tokens * m * hidden);
  pre = floats(tokens * m);
  new_pre = floats(tokens * m);
  post = floats(tokens * m);
  comb = floats(tokens * m * m);
  mix = floats(tokens * (2 + m) * m);
  site_in = floats(tokens * hidden);
  site_out = floats(tokens * hidden);
  if (options.numerics == Numerics::kFast) site_rounded = floats(tokens * hidden);
  for (std::span<float>* table : {&main_cos, &main_sin, &compress_cos, &compress_sin}) {
    *table = floats(tokens * c.qk_rope_head_dim / 2);
  }

  q_lora = floats(tokens * c.q_lora_rank);
  heads = floats(tokens * c.num_attention_heads * dim);
  kv = floats(tokens * dim);
  const int64_t window_rows = options.max_batch_items * (c.sliding_window - 1) + tokens;
  window_codes = arena.Take<uint8_t>(window_rows * dim);
  window_scales = arena.Take<uint8_t>(window_rows * dim / 32);
  arena.Begin("scratch, indexer", kTokens);
  compress_kv = floats(tokens * dim);
  compress_gate = floats(tokens * dim);
  latents = floats(tokens * dim);
  index_k = floats(tokens * c.index_head_dim);
  index_q = floats(tokens * c.index_n_heads * c.index_head_dim);
  index_weights = floats(tokens * c.index_n_heads);
  index_queries = arena.Take<std::byte>(
      tokens * static_cast<int64_t>(kernels::IndexQuery::BytesFor(c.index_n_heads, c.index_head_dim)));
  selected = arena.Take<int32_t>(tokens * c.index_topk);
  n_selected = arena.Take<int32_t>(tokens);
  candidates = arena.Take<int32_t>(tokens * c.candidate_topk_blocks);
  n_candidates = arena.Take<int32_t>(tokens);
  arena.Begin("scratch, attention", kThreads);
  attention_slots = 2 * int64_t{n_threads};
  selected_rows = arena.Take<kernels::LatentRow>(attention_slots * c.index_topk);
  attention_weights = floats(attention_slots * c.num_attention_heads *
                             kernels::AttentionStride(c.sliding_window + c.index_topk));
  attention_denominators = floats(attention_slots * c.num_attention_heads);
  arena.Begin("scratch, activations", kTokens);
  o_lora = floats(tokens * c.o_groups * c.o_lora_rank);

  arena.Begin("scratch, experts", kTokens);
  const int64_t slots = tokens * c.num_experts_per_tok;
  router_scores = floats(tokens * c.n_routed_experts);
  experts = arena.Take<int32_t>(slots);
  expert_weights = floats(slots);
  expert_first = arena.Take<int32_t>(c.n_routed_experts + 1);
  slot_token = arena.Take<int32_t>(slots);
  slot_weight = floats(slots);
  token_slots = arena.Take<int32_t>(slots);
  if (options.numerics == Numerics::kFast) {
    site_groups = arena.Take<kernels::QuantizedGroup>(tokens * kernels::QuantizedGroups(hidden));
    slot_groups =
        arena.Take<kernels::QuantizedGroup>(slots * kernels::QuantizedGroups(c.moe_intermediate_size));
    shared_rounded = floats(tokens * c.moe_intermediate_size);
  }
  gate_rows = floats((slots + tokens) * c.moe_intermediate_size);
  up_rows = floats((slots + tokens) * c.moe_intermediate_size);
  down_rows = floats((slots + tokens) * hidden);

  if (!plan.engram_layers.empty()) {
    arena.Begin("scratch, n-gram memory", kTokens);
    const int64_t columns = (c.engram_max_ngram_size - 1) * c.engram_n_heads;
    row_ids = arena.Take<int64_t>(tokens * static_cast<int64_t>(plan.engram_layers.size()) * columns);
    engram_rows = floats(tokens * columns * c.engram_head_dim);
    engram_kv = floats(tokens * (m + 1) * hidden);
    engram_gate = floats(tokens * m);
    class_window = arena.Take<int32_t>(c.engram_max_ngram_size - 1 + tokens);
  }

  arena.Begin("scratch, threads", kThreads);
  jobs = arena.Take<MatMulJob>(std::max(c.o_groups, c.n_routed_experts + 1));
  expert_tokens = arena.Take<ExpertTokens>(c.n_routed_experts + 1);

  constexpr int64_t kIndexBlock = 1536;  // a multiple of the kernel's tiles, so that none is half empty
  const int64_t index_blocks = std::max<int64_t>(1, kIndexBlock / c.candidate_block_size);
  index_block = index_blocks * c.candidate_block_size;
  // Each candidate block may be a run of its own, and each end of a page cuts one in two.
  const int64_t index_runs = 2 * index_blocks + index_block / MinPageEntries(plan, options.page_tokens) + 1;
  workers = arena.Take<WorkerScratch>(n_threads);
  for (int i = 0; i < n_threads; ++i) {
    WorkerScratch worker{
        .matmul = floats(static_cast<int64_t>(
            std::max(kernels::MatMulScratchFloats(MaxColumns(c)), kernels::kMatMulInt8ScratchFloats))),
        .attention = floats(static_cast<int64_t>(kernels::AttentionTileFloats(c.num_attention_heads, dim))),
        .row = floats(std::max({hidden, dim, c.index_n_heads * c.index_head_dim / 4})),
        .index_tile =
            arena.Take<std::byte>(static_cast<int64_t>(kernels::IndexScoreScratchBytes(c.index_head_dim))),
        .index_runs = arena.Take<kernels::IndexKeys>(index_runs),
        .index_scores = floats(kSelectionGroup * index_block),
        .index_blocks = floats(index_blocks)};
    if (!workers.empty()) std::construct_at(&workers[static_cast<size_t>(i)], worker);
  }
  arena.Begin("scratch, indexer", kTokens);
  const int64_t n_selections = std::max<int64_t>(n_threads, std::min(tokens, 16 * int64_t{n_threads}));
  selections = arena.Take<SelectionScratch>(n_selections);
  for (int64_t i = 0; i < n_selections; ++i) {
    const auto top_k = [&](int64_t k) {
      return arena.Take<kernels::Scored>(static_cast<int64_t>(kernels::RunningTopK::CapacityFor(k)));
    };
    const std::span<kernels::Scored> entries = top_k(c.index_topk);
    const std::span<kernels::Scored> blocks = top_k(c.candidate_topk_blocks);
    if (selections.empty()) continue;
    std::construct_at(&selections[static_cast<size_t>(i)],
                      SelectionScratch{.entries = kernels::RunningTopK(entries, c.index_topk),
                                       .blocks = kernels::RunningTopK(blocks, c.candidate_topk_blocks)});
  }
}

void ForwardScratch::KeepRows(std::span<const int32_t> rows) {
  const auto keep = [&](auto array) {
    const auto width = array.size() / static_cast<size_t>(max_tokens);
    for (size_t to = 0; to < rows.size(); ++to) {
      const auto from = static_cast<size_t>(rows[to]);
      if (from != to) std::copy_n(array.begin() + from * width, width, array.begin() + to * width);
    }
  };
  // Residual streams and the coefficients of the running site.
  for (const std::span<float> array : {streams, new_pre, post, comb}) keep(array);
  // What is computed once for all layers.
  for (const std::span<float> array : {main_cos, main_sin, compress_cos, compress_sin}) keep(array);
  keep(row_ids);
  // Selections that earlier layers have published.
  for (const std::span<int32_t> array : {selected, n_selected, candidates, n_candidates}) keep(array);
}

}  // namespace millrace::model
