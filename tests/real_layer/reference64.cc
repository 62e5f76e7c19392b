#include "real_layer/reference64.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace::real_layer {
namespace {

// A sum of a handful of products: every one is rounded with the sums it goes into.
constexpr double kFewTerms = 6;

Rope64 CompressRope(const formats::ModelConfig& config) {
  const auto& yarn = config.rope_scaling;
  if (!yarn) return {config.qk_rope_head_dim, config.compress_rope_theta};
  return {config.qk_rope_head_dim, config.compress_rope_theta,
          RopeScaling64{.factor = yarn->factor,
                        .beta_fast = yarn->beta_fast,
                        .beta_slow = yarn->beta_slow,
                        .original_positions = static_cast<double>(yarn->original_max_position_embeddings)}};
}

bool Contains(const std::vector<int64_t>& ids, int64_t id) {
  return std::ranges::find(ids, id) != ids.end();
}

int NearestAtOrBefore(const std::vector<int64_t>& ids, int l) {
  int nearest = -1;
  for (const int64_t id : ids)
    if (id <= l) nearest = std::max(nearest, static_cast<int>(id));
  Require(nearest >= 0, "no source at or before this layer");
  return nearest;
}

// The rows of `x` numbered `rows`.
Rows64 Gather(const Rows64& x, std::span<const int64_t> rows) {
  Rows64 out(static_cast<int64_t>(rows.size()), x.width);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(x.values(rows[i]), x.width, out.values(static_cast<int64_t>(i)));
    std::copy_n(x.errors(rows[i]), x.width, out.errors(static_cast<int64_t>(i)));
  }
  return out;
}

// Softmax over the rows of a [m, m] matrix and the alternating normalisations that follow it.
void Sinkhorn(double* c, int64_t m, int64_t iterations, double eps) {
  const auto divide = [&](int64_t first, int64_t stride) {
    double sum = eps;
    for (int64_t i = 0; i < m; ++i) sum += c[first + i * stride];
    for (int64_t i = 0; i < m; ++i) c[first + i * stride] /= sum;
  };
  for (int64_t j = 0; j < m; ++j) {
    double* row = c + j * m;
    const double largest = *std::max_element(row, row + m);
    double sum = 0;
    for (int64_t k = 0; k < m; ++k) sum += row[k] = std::exp(row[k] - largest);
    for (int64_t k = 0; k < m; ++k) row[k] = row[k] / sum + eps;
  }
  for (int64_t k = 0; k < m; ++k) divide(k, m);
  for (int64_t i = 1; i < iterations; ++i) {
    for (int64_t j = 0; j < m; ++j) divide(j * m, 1);
    for (int64_t k = 0; k < m; ++k) divide(k, m);
  }
}

double EngramGate(double dot) {
  return Sigmoid(std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot));
}

}  // namespace

Rows64 ExactRows(std::span<const std::vector<float>> rows) {
  Rows64 out(static_cast<int64_t>(rows.size()), rows.empty() ? 0 : static_cast<int64_t>(rows[0].size()));
  for (size_t t = 0; t < rows.size(); ++t) {
    Require(static_cast<int64_t>(rows[t].size()) == out.width, "rows differ in width");
    std::ranges::copy(rows[t], out.values(static_cast<int64_t>(t)));
  }
  return out;
}

Reference64::Reference64(const formats::ModelConfig& config, const StoredWeights& weights, ThreadPool& pool)
    : config_(config),
      weights_(weights),
      pool_(pool),
      main_rope_(config.qk_rope_head_dim, config.rope_theta),
      compress_rope_(CompressRope(config)) {}

bool Reference64::OwnsKv(int l) const {
  return Contains(config_.kv_source_layer_ids, l);
}
bool Reference64::OwnsIndex(int l) const {
  return Contains(config_.index_source_layer_ids, l);
}
int Reference64::KvSource(int l) const {
  return NearestAtOrBefore(config_.kv_source_layer_ids, l);
}
int Reference64::IndexSource(int l) const {
  return NearestAtOrBefore(config_.index_source_layer_ids, l);
}
bool Reference64::PublishesCandidates(int l) const {
  return l == config_.candidate_source_layer_id;
}
bool Reference64::UsesCandidates(int l) const {
  return OwnsIndex(l) && l > config_.candidate_source_layer_id;
}

std::optional<size_t> Reference64::EngramNumber(int l) const {
  const auto at = std::ranges::find(config_.engram_layer_ids, l);
  if (at == config_.engram_layer_ids.end()) return std::nullopt;
  return static_cast<size_t>(at - config_.engram_layer_ids.begin());
}

Matrix64 Reference64::LayerMatrix(int l, const std::string& name) const {
  return weights_.Matrix("layers." + std::to_string(l) + "." + name);
}

std::vector<double> Reference64::LayerValues(int l, const std::string& name) const {
  return weights_.Values("layers." + std::to_string(l) + "." + name);
}

Rows64 Reference64::InitialStreams(std::span<const TokenId> ids) const {
  const int64_t hidden = config_.hidden_size;
  const Matrix64 embed = weights_.Matrix("embed");
  Rows64 streams(static_cast<int64_t>(ids.size()), config_.hc_mult * hidden);
  for (int64_t t = 0; t < streams.n; ++t) {
    double* x = streams.values(t);
    embed.DecodeRow(ids[static_cast<size_t>(t)], x);
    for (int64_t j = 1; j < config_.hc_mult; ++j) std::copy_n(x, hidden, x + j * hidden);
  }
  return streams;
}

Reference64::Coefficients Reference64::Mix(int l, const std::string& site, const Rows64& streams) const {
  const int64_t m = config_.hc_mult;
  const std::vector<double> base = LayerValues(l, "hc_" + site + "_base");
  const std::vector<double> scale = LayerValues(l, "hc_" + site + "_scale");
  Rows64 z = streams;
  RmsNorm(z, {}, config_.rms_norm_eps);
  Rows64 mix = MatMul(LayerMatrix(l, "hc_" + site + "_fn"), z, pool_);
  Coefficients out{.pre = Rows64(z.n, m), .post = Rows64(z.n, m), .comb = Rows64(z.n, m * m)};
  for (int64_t t = 0; t < z.n; ++t) {
    double* v = mix.values(t);
    double* e = mix.errors(t);
    for (int64_t i = 0; i < mix.width; ++i) {
      const double factor = scale[static_cast<size_t>(std::min<int64_t>(i / m, 2))];
      const double shift = base[static_cast<size_t>(i)];
      e[i] = std::fabs(factor) * e[i] + 2 * kU * (std::fabs(v[i] * factor) + std::fabs(shift));
      v[i] = v[i] * factor + shift;
    }
    for (int64_t j = 0; j < m; ++j) {
      const double pre = Sigmoid(v[j]);
      const double post = Sigmoid(v[m + j]);
      out.pre.values(t)[j] = pre + config_.hc_eps;
      out.pre.errors(t)[j] = pre * (1 - pre) * e[j] + 4 * kU;
      out.post.values(t)[j] = 2 * post;
      out.post.errors(t)[j] = 2 * post * (1 - post) * e[m + j] + 8 * kU;
    }
    std::copy_n(v + 2 * m, m * m, out.comb.values(t));
    Sinkhorn(out.comb.values(t), m, config_.hc_sinkhorn_iters, config_.hc_eps);
    // A softmax moves by at most half of what its inputs move by; the normalisations bring the matrix back
    // each time, so that rounding does not pile up over the iterations.
    const double error = *std::max_element(e + 2 * m, e + mix.width) / 2 + 16 * kU;
    std::fill_n(out.comb.errors(t), m * m, error);
  }
  return out;
}

Rows64 Reference64::Collapse(const Rows64& streams, const Rows64& pre) const {
  const int64_t hidden = config_.hidden_size;
  Rows64 u(streams.n, hidden);
  for (int64_t t = 0; t < u.n; ++t) {
    for (int64_t j = 0; j < config_.hc_mult; ++j) {
      for (int64_t d = 0; d < hidden; ++d) {
        const double term = pre.values(t)[j] * streams.values(t)[j * hidden + d];
        u.values(t)[d] += term;
        u.errors(t)[d] += kFewTerms * kU * std::fabs(term);
      }
    }
  }
  return u;
}

Rows64 Reference64::SiteInput(int l, const std::string& site, const Rows64& streams,
                              const Rows64& pre) const {
  Rows64 u = Collapse(streams, pre);
  RmsNorm(u, LayerValues(l, site + "_norm.weight"), config_.rms_norm_eps);
  return u;
}

Rows64 Reference64::Expand(const Rows64& y, const Rows64& post, const Rows64& comb,
                           const Rows64& streams) const {
  const int64_t hidden = config_.hidden_size;
  const int64_t m = config_.hc_mult;
  Rows64 out(streams.n, m * hidden);
  for (int64_t t = 0; t < out.n; ++t) {
    for (int64_t k = 0; k < m; ++k) {
      double* value = out.values(t) + k * hidden;
      double* error = out.errors(t) + k * hidden;
      const auto add = [&](double factor, const double* x) {
        for (int64_t d = 0; d < hidden; ++d) {
          value[d] += factor * x[d];
          error[d] += kFewTerms * kU * std::fabs(factor * x[d]);
        }
      };
      add(post.values(t)[k], y.values(t));
      for (int64_t j = 0; j < m; ++j) add(comb.values(t)[j * m + k], streams.values(t) + j * hidden);
    }
  }
  return out;
}

Rows64 Reference64::FinalNorm(const Rows64& streams, const Rows64& pre) const {
  Rows64 h = Collapse(streams, pre);
  RmsNorm(h, weights_.Values("norm.weight"), config_.rms_norm_eps);
  return h;
}

Rows64 Reference64::Logits(const Rows64& final_norm) const {
  return MatMul(weights_.Matrix("head"), final_norm, pool_);
}

std::pair<Rows64, Rows64> Reference64::Engram(int l, const Rows64& streams,
                                              std::span<const std::vector<int64_t>> table_rows) const {
  const int64_t hidden = config_.hidden_size;
  const int64_t m = config_.hc_mult;
  const int64_t row_dim = config_.engram_head_dim;
  const std::string prefix = "layers." + std::to_string(l) + ".engram.";
  const Matrix64 table = weights_.Matrix(prefix + "embed", 1);
  Rows64 rows(streams.n, static_cast<int64_t>(table_rows[0].size()) * row_dim);
  for (int64_t t = 0; t < rows.n; ++t) {
    double* out = rows.values(t);
    for (const int64_t row : table_rows[static_cast<size_t>(t)]) {
      table.DecodeRow(row, out);
      out += row_dim;
    }
  }
  const Rows64 kv = MatMul(weights_.Matrix(prefix + "wkv"), rows, pool_);
  const std::vector<double> q_weight = weights_.Values(prefix + "q_weight");
  const std::vector<double> k_weight = weights_.Values(prefix + "k_weight");
  Rows64 gates(streams.n, m);
  Rows64 out = streams;
  std::vector<double> scaled(static_cast<size_t>(hidden));
  const auto n = static_cast<double>(hidden);
  for (int64_t t = 0; t < out.n; ++t) {
    const double* v = kv.values(t) + m * hidden;
    const double* v_error = kv.errors(t) + m * hidden;
    for (int64_t j = 0; j < m; ++j) {
      double* x = out.values(t) + j * hidden;
      const double* key = kv.values(t) + j * hidden;
      for (int64_t d = 0; d < hidden; ++d) {
        const auto at = static_cast<size_t>(j * hidden + d);
        scaled[static_cast<size_t>(d)] = x[d] * q_weight[at] * k_weight[at];
      }
      const double norm_scaled = Norm(scaled.data(), hidden);
      const double norm_key = Norm(key, hidden);
      const double key_error = Norm(kv.errors(t) + j * hidden, hidden);
      const double norms = 1 / std::sqrt(Dot(x, x, hidden) / n + config_.rms_norm_eps) /
                           std::sqrt(norm_key * norm_key / n + config_.rms_norm_eps) / std::sqrt(n);
      const double dot = Dot(scaled.data(), key, hidden) * norms;
      const double dot_error = norms * norm_scaled * (2 * kU * norm_key + key_error / std::sqrt(n)) +
                               std::fabs(dot) * (16 * kU + key_error / norm_key);
      const double gate = EngramGate(dot);
      const double gate_error =
          4 * kU + std::max(EngramGate(dot + dot_error) - gate, gate - EngramGate(dot - dot_error));
      gates.values(t)[j] = gate;
      gates.errors(t)[j] = gate_error;
      double* error = out.errors(t) + j * hidden;
      for (int64_t d = 0; d < hidden; ++d) {
        x[d] += gate * v[d];
        error[d] = gate_error * std::fabs(v[d]) + gate * v_error[d] +
                   2 * kU * (std::fabs(x[d]) + std::fabs(gate * v[d]));
      }
    }
  }
  return {std::move(gates), std::move(out)};
}

Rows64 Reference64::RouterScores(int l, const Rows64& x) const {
  Rows64 s = MatMul(LayerMatrix(l, "ffn.gate"), x, pool_);
  for (size_t i = 0; i < s.value.size(); ++i) {
    const double z = s.value[i] / config_.gate_temp;
    const double softplus = z > 20 ? z : std::log1p(std::exp(z));
    const double score = std::sqrt(softplus);
    s.value[i] = score;
    s.error[i] = Sigmoid(z) / (2 * score) * s.error[i] / config_.gate_temp + 4 * kU * score;
  }
  return s;
}

std::vector<int64_t> Reference64::ChooseExperts(int l, std::span<const float> scores) const {
  const std::vector<double> bias = LayerValues(l, "ffn.gate.bias");
  std::vector<float> biased;
  for (size_t e = 0; e < scores.size(); ++e) biased.push_back(scores[e] + static_cast<float>(bias[e]));
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return biased[static_cast<size_t>(a)] > biased[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(config_.num_experts_per_tok));
  return order;
}

Rows64 Reference64::ExpertWeights(const Rows64& scores, std::span<const std::vector<int64_t>> experts) const {
  Rows64 out(scores.n, config_.num_experts_per_tok);
  for (int64_t t = 0; t < out.n; ++t) {
    double sum = 1e-20;
    for (const int64_t e : experts[static_cast<size_t>(t)]) sum += scores.values(t)[e];
    for (int64_t i = 0; i < out.width; ++i) {
      const int64_t e = experts[static_cast<size_t>(t)][static_cast<size_t>(i)];
      out.values(t)[i] = config_.routed_scaling_factor * scores.values(t)[e] / sum;
      out.errors(t)[i] = 6 * kU * out.values(t)[i];
    }
  }
  return out;
}

Rows64 Reference64::RunExpert(int l, const std::string& name, const Rows64& x,
                              std::span<const double> weights) const {
  const std::string prefix = "ffn." + name + ".";
  const double limit = config_.swiglu_limit;
  Rows64 f = MatMul(LayerMatrix(l, prefix + "w1"), x, pool_);
  const Rows64 up = MatMul(LayerMatrix(l, prefix + "w3"), x, pool_);
  constexpr double kSteepestSilu = 1.1;
  for (int64_t t = 0; t < f.n; ++t) {
    const double weight = weights[static_cast<size_t>(t)];
    for (int64_t i = 0; i < f.width; ++i) {
      double g = f.values(t)[i];
      double u = up.values(t)[i];
      if (limit > 0) {
        g = std::min(g, limit);
        u = std::clamp(u, -limit, limit);
      }
      const double silu = g * Sigmoid(g);
      const double product = weight * silu * u;
      f.errors(t)[i] = std::fabs(weight) * (kSteepestSilu * f.errors(t)[i] * std::fabs(u) +
                                            std::fabs(silu) * up.errors(t)[i]) +
                       6 * kU * std::fabs(product);
      f.values(t)[i] = product;
    }
  }
  return MatMul(LayerMatrix(l, prefix + "w2"), f, pool_);
}

Rows64 Reference64::Experts(int l, const Rows64& x, std::span<const std::vector<int64_t>> experts,
                            const Rows64& expert_weights) const {
  Rows64 sum = RunExpert(l, "shared_experts", x, std::vector<double>(static_cast<size_t>(x.n), 1.0));
  const auto add = [&](int64_t t, const double* value, const double* error) {
    for (int64_t d = 0; d < sum.width; ++d) {
      sum.values(t)[d] += value[d];
      sum.errors(t)[d] += error[d] + kU * std::fabs(value[d]);
    }
  };
  for (int64_t e = 0; e < config_.n_routed_experts; ++e) {
    std::vector<int64_t> tokens;
    std::vector<double> weights;
    for (int64_t t = 0; t < x.n; ++t) {
      const std::vector<int64_t>& chosen = experts[static_cast<size_t>(t)];
      const auto at = std::ranges::find(chosen, e);
      if (at == chosen.end()) continue;
      tokens.push_back(t);
      weights.push_back(expert_weights.values(t)[at - chosen.begin()]);
    }
    if (tokens.empty()) continue;
    const Rows64 y = RunExpert(l, "experts." + std::to_string(e), Gather(x, tokens), weights);
    for (size_t i = 0; i < tokens.size(); ++i)
      add(tokens[i], y.values(static_cast<int64_t>(i)), y.errors(static_cast<int64_t>(i)));
  }
  return sum;
}

}  // namespace millrace::real_layer
