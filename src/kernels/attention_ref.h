#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/exp_ref.h"
#include "kernels/matmul_ref.h"

// The plain meaning of attention.h, one head at a time, which the vector code must equal bit for bit.
namespace millrace::kernels::ref {

inline const float* AttentionRow(const AttentionRows& rows, int64_t head_dim, int64_t a) {
  if (a < rows.n_window) return rows.window + a * head_dim;
  return rows.selected + (a - rows.n_window) * head_dim;
}

// One head: q and the result are [head_dim].
inline std::vector<float> AttentionHead(const float* q, int64_t head_dim, const AttentionRows& rows,
                                        float sink, float scale) {
  const int64_t n = rows.n_window + rows.n_selected;
  std::vector<float> weights;
  for (int64_t a = 0; a < n; ++a)
    weights.push_back(Dot(q, AttentionRow(rows, head_dim, a), static_cast<size_t>(head_dim)) * scale);
  float mx = sink;
  for (const float logit : weights) mx = std::max(mx, logit);
  std::array<float, 16> sums{};
  for (size_t a = 0; a < weights.size(); ++a) {
    weights[a] = ExpNonPositive(weights[a] - mx);
    sums[a % 16] += weights[a];
  }
  const float denominator = SumTree(sums) + ExpNonPositive(sink - mx);
  std::vector<float> out(static_cast<size_t>(head_dim));
  for (int64_t a = 0; a < n; ++a) {
    const float* row = AttentionRow(rows, head_dim, a);
    for (size_t d = 0; d < out.size(); ++d)
      out[d] = std::fma(weights[static_cast<size_t>(a)], row[d], out[d]);
  }
  for (float& value : out) value /= denominator;
  return out;
}

}  // namespace millrace::kernels::ref
