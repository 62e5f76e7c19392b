#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/planned_memory.h"
#include "kernels/attention.h"
#include "kernels/index_score.h"
#include "kernels/matmul.h"
#include "kernels/matmul_int8.h"
#include "kernels/matmul_rounded.h"
#include "kernels/top_k.h"
#include "model/forward.h"
#include "model/layer_plan.h"
#include "model/weights.h"

namespace millrace::model {

// Cuts spans out of one block, each aligned to 64 bytes. Without a block it only counts, so that the plan and
// the allocation walk the same code. What is taken counts for the part that was begun last.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::byte* block) : block_(block) {}

  template <typename T>
  std::span<T> Take(int64_t n) {
    const size_t at = used_;
    used_ += (static_cast<size_t>(n) * sizeof(T) + 63) / 64 * 64;
    parts_.at(current_).bytes += used_ - at;
    if (block_ == nullptr) return {};
    return {reinterpret_cast<T*>(block_ + at), static_cast<size_t>(n)};
  }

  // A line of the memory plan; one that was begun before goes on.
  void Begin(std::string_view part, std::string_view depends_on) {
    current_ = 0;
    while (current_ < parts_.size() && parts_[current_].name != part) ++current_;
    if (current_ == parts_.size()) parts_.push_back({std::string(part), 0, std::string(depends_on)});
  }

  size_t used() const { return used_; }
  const std::vector<PlannedMemory>& parts() const { return parts_; }

 private:
  std::byte* block_ = nullptr;
  size_t used_ = 0;
  std::vector<PlannedMemory> parts_;
  size_t current_ = 0;  // of parts_
};

// y[t, o] = A[o] . x[t] for one range of rows, as one part of a RunMatMuls call.
struct MatMulJob {
  const kernels::WeightMatrix* a = nullptr;
  kernels::InputRows x;
  kernels::QuantizedRows quantized = {};  // if it has a base, it is multiplied instead of x
  kernels::RoundedRows rounded = {};      // the same
  int64_t n_tokens = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;  // exclusive
};

// The tokens of a batch that one expert works on: slots [first, first + n_tokens).
struct ExpertTokens {
  const ExpertWeights* expert = nullptr;
  const int32_t* index = nullptr;  // their rows in the batch; null: 0 .. n_tokens - 1
  int64_t first = 0;
  int64_t n_tokens = 0;
  bool routed = false;
};

// What one thread needs for itself while it works on a task.
struct WorkerScratch {
  std::span<float> matmul;
  std::span<float> attention;
  std::span<float> row;                      // one vector of a token, or the codes of its index query
  std::span<std::byte> index_tile;           // kernels::IndexScores' own
  std::span<kernels::IndexKeys> index_runs;  // contiguous entries among one index block
  std::span<float> index_scores;             // [tokens of a selection group, index block]
  std::span<float> index_blocks;             // [index block / candidate_block_size] best scores
};

// Tokens of one sequence that the indexer searches entries for together, at most.
inline constexpr int64_t kSelectionGroup = 4;

// What the indexer has found so far for one token in one slice of its entries.
struct SelectionScratch {
  kernels::RunningTopK entries;  // best index_topk
  kernels::RunningTopK blocks;   // best candidate_topk_blocks, on the candidate source
};

// Every array of the forward pass, sized by the options: T tokens, M streams, H hidden, D head_dim, N heads.
struct ForwardScratch {
  ForwardScratch(const LayerPlan& plan, const ForwardOptions& options, int n_threads, Arena& arena);

  // Moves the values of tokens `rows`, ascending, to rows 0, 1, ... in every array that holds them from a
  // late layer's window entries to the next use: where tokens of the batch are left out.
  void KeepRows(std::span<const int32_t> rows);

  int64_t max_tokens = 0;  // T

  // whole pass
  std::span<float> streams;       // [T, M, H]
  std::span<float> pre;           // [T, M] collapse weights handed to the next site
  std::span<float> new_pre;       // [T, M]
  std::span<float> post;          // [T, M]
  std::span<float> comb;          // [T, M, M]
  std::span<float> mix;           // [T, (2 + M) M]
  std::span<float> site_in;       // [T, H]
  std::span<float> site_out;      // [T, H]
  std::span<float> site_rounded;  // [T, H] site_in by kernels::RoundInputs; fast numerics
  std::span<float> main_cos, main_sin, compress_cos, compress_sin;  // [T, R / 2]

  // attention
  std::span<float> q_lora;                      // [T, q_lora_rank]
  std::span<float> heads;                       // [T, N, D] queries, then outputs
  std::span<float> kv;                          // [T, D] window projection
  std::span<uint8_t> window_codes;              // [items * (window - 1) + T, D]
  std::span<uint8_t> window_scales;             // [items * (window - 1) + T, D / 32]
  std::span<float> compress_kv;                 // [T, D]
  std::span<float> compress_gate;               // [T, D]
  std::span<float> latents;                     // [T, D]
  std::span<float> index_k;                     // [T, index_head_dim]
  std::span<float> index_q;                     // [T, index_n_heads, index_head_dim]
  std::span<float> index_weights;               // [T, index_n_heads]
  std::span<std::byte> index_queries;           // [T] kernels::IndexQuery, each of IndexQuery::BytesFor
  std::span<int32_t> selected;                  // [T, index_topk] ascending
  std::span<int32_t> n_selected;                // [T]
  std::span<int32_t> candidates;                // [T, candidate_topk_blocks] ascending
  std::span<int32_t> n_candidates;              // [T]
  std::span<kernels::LatentRow> selected_rows;  // [attention_slots, index_topk]
  std::span<float> attention_weights;           // [attention_slots, N, stride of window + index_topk]
  std::span<float> attention_denominators;      // [attention_slots, N]
  int64_t attention_slots = 0;                  // tokens that attention works on at a time, at least threads
  std::span<float> o_lora;                      // [T, o_groups * o_lora_rank]

  // experts: a slot is one (token, chosen expert); k = num_experts_per_tok
  std::span<float> router_scores;                  // [T, E]
  std::span<int32_t> experts;                      // [T, k] by descending biased score
  std::span<float> expert_weights;                 // [T, k]
  std::span<int32_t> expert_first;                 // [E + 1] first slot of each expert
  std::span<int32_t> slot_token;                   // [T k]
  std::span<float> slot_weight;                    // [T k]
  std::span<int32_t> token_slots;                  // [T, k] ascending by expert
  std::span<kernels::QuantizedGroup> site_groups;  // [T, groups of H] site_in, rounded; fast numerics
  std::span<kernels::QuantizedGroup>
      slot_groups;                  // [T k, groups of I] the routed gate_rows, rounded; fast numerics
  std::span<float> shared_rounded;  // [T, I] the shared expert's gate_rows by RoundInputs; fast numerics
  std::span<float> gate_rows;       // [T k + T, I] routed slots, then the shared expert's tokens
  std::span<float> up_rows;         // [T k + T, I]
  std::span<float> down_rows;       // [T k + T, H]

  // engram
  std::span<int64_t> row_ids;       // [T, engram layers, columns]
  std::span<float> engram_rows;     // [T, columns * engram_head_dim]
  std::span<float> engram_kv;       // [T, (M + 1) H]
  std::span<float> engram_gate;     // [T, M]
  std::span<int32_t> class_window;  // [max_ngram - 1 + T]

  std::span<MatMulJob> jobs;               // [max(o_groups, E + 1)]
  std::span<ExpertTokens> expert_tokens;   // [E + 1]
  std::span<WorkerScratch> workers;        // [threads]
  std::span<SelectionScratch> selections;  // tokens times slices that are searched at a time
  int64_t index_block = 0;                 // entries scored at a time, a multiple of candidate_block_size
};

}  // namespace millrace::model
