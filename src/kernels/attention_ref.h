#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/codecs.h"
#include "kernels/attention.h"
#include "kernels/exp_ref.h"
#include "kernels/matmul_ref.h"

// The plain meaning of attention.h, one head at a time, which the vector code must equal bit for bit.
namespace millrace::kernels::ref {

inline std::vector<float> AttentionRow(const AttentionRows& rows, int64_t head_dim, int64_t a) {
  std::vector<float> values;
  if (a < rows.n_window) {
    const uint8_t* codes = rows.window_codes + a * head_dim;
    const uint8_t* scales = rows.window_scales + a * (head_dim / 32);
    for (int64_t d = 0; d < head_dim; ++d)
      values.push_back(E4m3ToFloat(codes[d]) * E8m0ToFloat(scales[d / 32]));
  } else {
    const LatentRow& row = rows.selected[a - rows.n_window];
    for (int64_t d = 0; d < head_dim; ++d) {
      const uint8_t pair = row.codes[d / 2];
      values.push_back(E2m1ToFloat(d % 2 == 0 ? pair & 15 : pair >> 4) * E4m3ToFloat(row.scales[d / 16]));
    }
  }
  return values;
}

// Head h of the query: [head_dim].
inline std::vector<float> AttentionHead(const AttentionQuery& query, int64_t h) {
  const auto dim = static_cast<size_t>(query.head_dim);
  const float sink = query.sinks[h];
  std::vector<std::vector<float>> rows;
  std::vector<float> weights;
  float mx = sink;
  for (int64_t a = 0; a < query.rows.n(); ++a) {
    rows.push_back(AttentionRow(query.rows, query.head_dim, a));
    weights.push_back(Dot(query.q + h * query.head_dim, rows.back().data(), dim) * query.scale);
    mx = std::max(mx, weights.back());
  }
  std::array<float, 16> sums{};
  for (size_t a = 0; a < weights.size(); ++a) {
    weights[a] = ExpNonPositive(weights[a] - mx);
    sums[a % 16] += weights[a];
  }
  const float denominator = SumTree(sums) + ExpNonPositive(sink - mx);
  std::vector<float> out(dim);
  for (size_t a = 0; a < weights.size(); ++a) {
    for (size_t d = 0; d < dim; ++d) out[d] = std::fma(weights[a], rows[a][d], out[d]);
  }
  for (float& value : out) value /= denominator;
  return out;
}

}  // namespace millrace::kernels::ref
