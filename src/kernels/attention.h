#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace::kernels {

// What some heads of one query attend to: key and value are the same vector, shared by all heads
// (shared/spec/v41-text.md, section 5.3). Rows are contiguous float32 [n, head_dim].
struct AttentionRows {
  const float* window = nullptr;  // oldest position first, the query's own last
  int64_t n_window = 0;
  const float* selected = nullptr;  // compressed entries, ascending
  int64_t n_selected = 0;
};

// Floats of scratch that SparseAttention needs for up to `max_rows` rows.
constexpr size_t AttentionScratchFloats(int64_t max_rows) {
  return static_cast<size_t>(4 * (max_rows + 16));
}

// For each head h: l[a] = (q_h . kv_a) * scale; o_h = sum_a e^(l[a]-mx) kv_a / (sum_a e^(l[a]-mx) +
// e^(sink_h-mx)), mx the maximum of l and sink_h. q and out are [n_heads, head_dim] and may be the same
// array.
//
// Order of sums, part of the contract: dot products as in matmul.h; the denominator as sixteen partial sums
// over the rows (window first, then selected) in the same tree, the sink last; each output channel by fused
// multiply-adds in row order. Heads do not influence each other. head_dim is a multiple of 16.
void SparseAttention(const float* q, int64_t n_heads, int64_t head_dim, const AttentionRows& rows,
                     const float* sinks, float scale, float* out, std::span<float> scratch);

}  // namespace millrace::kernels
