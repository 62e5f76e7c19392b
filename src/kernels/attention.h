#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace::kernels {

// One compressed entry as its page holds it: Q4b codes [head_dim / 2] and scales [head_dim / 16]
// (shared/spec/v41-text.md, section 3.3).
struct LatentRow {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
};

// What one query attends to: key and value are the same vector, shared by all heads (section 5.3). Window
// rows are contiguous: Q8 codes [n_window, head_dim] and scales [n_window, head_dim / 32].
struct AttentionRows {
  const uint8_t* window_codes = nullptr;  // oldest position first, the query's own last
  const uint8_t* window_scales = nullptr;
  int64_t n_window = 0;
  const LatentRow* selected = nullptr;  // ascending
  int64_t n_selected = 0;

  int64_t n() const { return n_window + n_selected; }
};

// Sixteen rows' logits are padded to.
constexpr int64_t AttentionStride(int64_t n_rows) {
  return (n_rows + 15) / 16 * 16;
}

// The heads of one query and what they attend to. head_dim is a multiple of 32.
struct AttentionQuery {
  int64_t n_heads = 0;
  int64_t head_dim = 0;
  AttentionRows rows;
  const float* q = nullptr;      // [n_heads, head_dim]
  const float* sinks = nullptr;  // [n_heads]
  float scale = 0;
  float* weights = nullptr;       // [n_heads, AttentionStride(rows.n())], from step to step
  float* denominators = nullptr;  // [n_heads], likewise
  float* out = nullptr;           // [n_heads, head_dim]; may be q
};

// Rows that are decoded at a time for logits; rows and channels that are for outputs.
inline constexpr int64_t kLogitRows = 8;
inline constexpr int64_t kOutputRows = 64;
inline constexpr int64_t kOutputChannels = 64;

// Floats of scratch, private to a thread, for decoded rows and sums of outputs.
constexpr size_t AttentionTileFloats(int64_t n_heads, int64_t head_dim) {
  const int64_t for_logits = kLogitRows * head_dim;
  const int64_t for_outputs = (kOutputRows + n_heads) * kOutputChannels;
  return static_cast<size_t>(for_logits > for_outputs ? for_logits : for_outputs);
}

// For each head h: l[a] = (q_h . kv_a) * scale; o_h = sum_a e^(l[a]-mx) kv_a / (sum_a e^(l[a]-mx) +
// e^(sink_h-mx)), mx the maximum of l and sink_h.
//
// Order of sums, part of the contract: rows are those of the window, then the selected ones. A dot product
// adds element i to partial sum i mod 16 with one fused multiply-add, and the sixteen sums as a tree: l and
// l + 8, then + 4, + 2, + 1. The denominator is sixteen partial sums over the rows in the same tree, the sink
// last; each output channel is fused multiply-adds in row order. Rows decode exactly. Heads do not influence
// each other.
//
// The steps, for threads that share the heads of one query: all logits, then all weights, then all outputs.
// Each may be cut as its ranges say without changing a bit; each decodes the rows that it reads once for all
// its heads.

// Logits of rows [begin, end).
void AttentionLogits(const AttentionQuery& query, int64_t begin, int64_t end, std::span<float> tile);
// Logits to weights and denominators, for heads [begin, end).
void AttentionWeights(const AttentionQuery& query, int64_t begin, int64_t end);
// Channels [begin, end) of heads [head_begin, head_end); the former multiples of 32, best of kOutputChannels.
void AttentionOutputs(const AttentionQuery& query, int64_t begin, int64_t end, int64_t head_begin,
                      int64_t head_end, std::span<float> tile);

// All three by one thread.
void SparseAttention(const AttentionQuery& query, std::span<float> tile);

}  // namespace millrace::kernels
