#include <algorithm>
#include <cmath>
#include <numeric>

#include "real_layer/reference64.h"

namespace millrace::real_layer {
namespace {

std::vector<int64_t> GroupPositions(int64_t n_entries, int64_t ratio) {
  std::vector<int64_t> positions;
  for (int64_t j = 0; j < n_entries; ++j) positions.push_back(j * ratio);
  return positions;
}

// The `k` best of `ids`, ascending; ties to the lower id. score(id).
template <typename Score>
std::vector<int64_t> Best(std::vector<int64_t> ids, int64_t k, Score score) {
  std::ranges::stable_sort(ids, [&](int64_t a, int64_t b) { return score(a) > score(b); });
  if (static_cast<int64_t>(ids.size()) > k) ids.resize(static_cast<size_t>(k));
  std::ranges::sort(ids);
  return ids;
}

}  // namespace

Rows64 Reference64::LowRankQuery(int l, const Rows64& x) const {
  Rows64 c = MatMul(LayerMatrix(l, "attn.wq_a"), x, pool_);
  RmsNorm(c, LayerValues(l, "attn.q_norm.weight"), config_.rms_norm_eps);
  return c;
}

Quantised Reference64::WindowKv(int l, const Rows64& x, std::span<const int64_t> positions) const {
  Rows64 w = MatMul(LayerMatrix(l, "attn.wkv"), x, pool_);
  RmsNorm(w, LayerValues(l, "attn.kv_norm.weight"), config_.rms_norm_eps);
  RopeOf(l).Rotate(w, config_.head_dim, positions);
  return Q8(w);
}

Rows64 Reference64::Latents(int l, const Rows64& x) const {
  const int64_t r = ratio(l);
  const Rows64 k = MatMul(LayerMatrix(l, "attn.compressor.wkv"), x, pool_);
  Rows64 latents(x.n / r, config_.head_dim);
  if (r == 1) {
    latents = k;
  } else {
    const Rows64 s = MatMul(LayerMatrix(l, "attn.compressor.wgate"), x, pool_);
    for (int64_t j = 0; j < latents.n; ++j) {
      for (int64_t d = 0; d < latents.width; ++d) {
        double largest = -INFINITY, sum = 0, mixed = 0, error = 0, gate_error = 0, magnitude = 0;
        for (int64_t t = j * r; t < (j + 1) * r; ++t) largest = std::max(largest, s.values(t)[d]);
        for (int64_t t = j * r; t < (j + 1) * r; ++t) sum += std::exp(s.values(t)[d] - largest);
        for (int64_t t = j * r; t < (j + 1) * r; ++t) {
          const double share = std::exp(s.values(t)[d] - largest) / sum;
          mixed += share * k.values(t)[d];
          error += share * k.errors(t)[d];
          // The derivative of a softmax is at most a quarter.
          gate_error += s.errors(t)[d] / 4 + 8 * kU * share;
          magnitude = std::max(magnitude, std::fabs(k.values(t)[d]));
        }
        latents.values(j)[d] = mixed;
        latents.errors(j)[d] = error + 2 * gate_error * magnitude;
      }
    }
  }
  RmsNorm(latents, LayerValues(l, "attn.compressor.norm.weight"), config_.rms_norm_eps);
  return latents;
}

Quantised Reference64::IndexKeys(int l, const Rows64& latents) const {
  Rows64 keys = MatMul(LayerMatrix(l, "attn.indexer.wk"), latents, pool_);
  RmsNorm(keys, LayerValues(l, "attn.indexer.k_norm.weight"), config_.rms_norm_eps);
  compress_rope_.Rotate(keys, config_.index_head_dim, GroupPositions(keys.n, ratio(l)));
  return Q4a(keys);
}

Quantised Reference64::CompressedKv(int l, const Rows64& latents) const {
  Rows64 rotated = latents;
  compress_rope_.Rotate(rotated, config_.head_dim, GroupPositions(latents.n, ratio(l)));
  return Q4b(rotated);
}

Quantised Reference64::IndexQueries(int l, const Rows64& x, std::span<const int64_t> positions) const {
  Rows64 q = MatMul(LayerMatrix(l, "attn.indexer.wq_b"), LowRankQuery(l, x), pool_);
  compress_rope_.Rotate(q, config_.index_head_dim, positions);
  return Q4a(q);
}

Rows64 Reference64::IndexScores(int l, const Rows64& x, const Rows64& queries, const Rows64& keys) const {
  const int64_t dim = config_.index_head_dim;
  const double head_scale = 1 / std::sqrt(static_cast<double>(config_.index_n_heads));
  const double dim_scale = 1 / std::sqrt(static_cast<double>(dim));
  const Rows64 weights = MatMul(LayerMatrix(l, "attn.indexer.weights_proj"), x, pool_);
  std::vector<double> key_norms;
  for (int64_t j = 0; j < keys.n; ++j) key_norms.push_back(Norm(keys.values(j), dim));
  Rows64 scores(queries.n, keys.n);
  pool_.ParallelFor(static_cast<size_t>(queries.n), [&](size_t task, int) {
    const auto t = static_cast<int64_t>(task);
    std::vector<double> squared_error(static_cast<size_t>(keys.n));
    for (int64_t h = 0; h < config_.index_n_heads; ++h) {
      const double* q = queries.values(t) + h * dim;
      const double q_norm = Norm(q, dim);
      const double weight = weights.values(t)[h] * head_scale * dim_scale;
      const double weight_error = weights.errors(t)[h] * head_scale * dim_scale + 4 * kU * std::fabs(weight);
      for (int64_t j = 0; j < keys.n; ++j) {
        const double similarity = std::max(Dot(q, keys.values(j), dim), 0.0);
        scores.values(t)[j] += weight * similarity;
        const double error =
            weight_error * similarity + std::fabs(weight) * kU * q_norm * key_norms[static_cast<size_t>(j)];
        squared_error[static_cast<size_t>(j)] += error * error;
      }
    }
    for (int64_t j = 0; j < keys.n; ++j)
      scores.errors(t)[j] = std::sqrt(squared_error[static_cast<size_t>(j)]);
  });
  return scores;
}

void Reference64::AttendHead(const double* q, const double* q_error, const Rows64& attended, double sink,
                             double* out, double* out_error) const {
  const int64_t dim = config_.head_dim;
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  const double q_norm = Norm(q, dim);
  const double q_rms_error = Norm(q_error, dim) / std::sqrt(static_cast<double>(dim));
  std::vector<double> logits(static_cast<size_t>(attended.n));
  double largest = sink;
  for (int64_t a = 0; a < attended.n; ++a) {
    logits[static_cast<size_t>(a)] = Dot(q, attended.values(a), dim) * scale;
    largest = std::max(largest, logits[static_cast<size_t>(a)]);
  }
  double sum = std::exp(sink - largest);
  for (const double logit : logits) sum += std::exp(logit - largest);
  // With p_a the share of row a and e_a the error of its logit, channel d errs by
  // sqrt(sum_a (p_a e_a (kv_a - out))^2): the square is moment2 - 2 out moment1 + out^2 moment0.
  double moment0 = 0;
  std::vector<double> moment1(static_cast<size_t>(dim)), moment2(static_cast<size_t>(dim)),
      magnitude(static_cast<size_t>(dim));
  std::fill_n(out, dim, 0.0);
  for (int64_t a = 0; a < attended.n; ++a) {
    const double* kv = attended.values(a);
    const double logit = logits[static_cast<size_t>(a)];
    const double p = std::exp(logit - largest) / sum;
    const double logit_error = scale * Norm(kv, dim) * (2 * kU * q_norm + q_rms_error) +
                               3 * kU * (1 + std::fabs(logit) + std::fabs(largest));
    const double pe2 = p * p * logit_error * logit_error;
    moment0 += pe2;
    for (int64_t d = 0; d < dim; ++d) {
      const auto i = static_cast<size_t>(d);
      out[d] += p * kv[d];
      magnitude[i] += p * std::fabs(kv[d]);
      moment1[i] += pe2 * kv[d];
      moment2[i] += pe2 * kv[d] * kv[d];
    }
  }
  for (int64_t d = 0; d < dim; ++d) {
    const auto i = static_cast<size_t>(d);
    const double variance = moment2[i] - 2 * out[d] * moment1[i] + out[d] * out[d] * moment0;
    out_error[d] = std::sqrt(std::max(variance, 0.0)) + 4 * kU * magnitude[i];
  }
}

Rows64 Reference64::Attention(int l, const Rows64& x, std::span<const int64_t> positions,
                              std::span<const Rows64> attended) const {
  const int64_t dim = config_.head_dim;
  const int64_t n_heads = config_.num_attention_heads;
  const std::vector<double> sinks = LayerValues(l, "attn.attn_sink");
  Rows64 q = MatMul(LayerMatrix(l, "attn.wq_b"), LowRankQuery(l, x), pool_);
  RopeOf(l).Rotate(q, dim, positions);
  Rows64 heads(q.n, q.width);
  pool_.ParallelFor(static_cast<size_t>(q.n * n_heads), [&](size_t task, int) {
    const int64_t t = static_cast<int64_t>(task) / n_heads;
    const int64_t h = static_cast<int64_t>(task) % n_heads;
    AttendHead(q.values(t) + h * dim, q.errors(t) + h * dim, attended[static_cast<size_t>(t)],
               sinks[static_cast<size_t>(h)], heads.values(t) + h * dim, heads.errors(t) + h * dim);
  });
  RopeOf(l).Rotate(heads, dim, positions, true);

  const int64_t rank = config_.o_lora_rank;
  const int64_t group_width = n_heads * dim / config_.o_groups;
  const Matrix64 wo_a = LayerMatrix(l, "attn.wo_a");
  Rows64 b(heads.n, config_.o_groups * rank);
  for (int64_t g = 0; g < config_.o_groups; ++g) {
    const Rows64 part = MatMul(
        wo_a, heads, {.row_begin = g * rank, .row_end = (g + 1) * rank, .col_begin = g * group_width}, pool_);
    for (int64_t t = 0; t < b.n; ++t) {
      std::copy_n(part.values(t), rank, b.values(t) + g * rank);
      std::copy_n(part.errors(t), rank, b.errors(t) + g * rank);
    }
  }
  return MatMul(LayerMatrix(l, "attn.wo_b"), b, pool_);
}

std::vector<int64_t> Reference64::SelectEntries(std::span<const float> scores,
                                                const std::optional<std::vector<int64_t>>& candidates) const {
  const int64_t block = config_.candidate_block_size;
  std::vector<int64_t> entries;
  for (int64_t j = 0; j < static_cast<int64_t>(scores.size()); ++j) {
    if (!candidates || std::ranges::binary_search(*candidates, j / block)) entries.push_back(j);
  }
  return Best(std::move(entries), config_.index_topk,
              [&](int64_t j) { return scores[static_cast<size_t>(j)]; });
}

std::vector<int64_t> Reference64::CandidateBlocks(std::span<const float> scores) const {
  const int64_t block = config_.candidate_block_size;
  const auto n = static_cast<int64_t>(scores.size());
  std::vector<float> best(static_cast<size_t>((n + block - 1) / block), -INFINITY);
  for (int64_t j = 0; j < n; ++j) {
    float& of_block = best[static_cast<size_t>(j / block)];
    of_block = std::max(of_block, scores[static_cast<size_t>(j)]);
  }
  if (n > 0) best[static_cast<size_t>((n - 1) / block)] = INFINITY;
  std::vector<int64_t> blocks(best.size());
  std::iota(blocks.begin(), blocks.end(), 0);
  return Best(std::move(blocks), config_.candidate_topk_blocks,
              [&](int64_t b) { return best[static_cast<size_t>(b)]; });
}

}  // namespace millrace::real_layer
