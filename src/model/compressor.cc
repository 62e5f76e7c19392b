#include <algorithm>
#include <cmath>

#include "kernels/quantize.h"
#include "kernels/rms_norm.h"
#include "model/sites.h"

namespace millrace::model {
namespace {

// Softmax over the two gate logits of a group, channel by channel; the weighted sum of its two projections.
void MixPair(const float* k0, const float* s0, const float* k1, const float* s1, int64_t n, float* out) {
  for (int64_t d = 0; d < n; ++d) {
    const float mx = std::max(s0[d], s1[d]);
    const float e0 = std::exp(s0[d] - mx);
    const float e1 = std::exp(s1[d] - mx);
    out[d] = e0 / (e0 + e1) * k0[d] + e1 / (e0 + e1) * k1[d];
  }
}

// The entries that a batch completes for one KV source, numbered in batch order.
class CompletedEntries {
 public:
  CompletedEntries(const BatchLayout& batch, int64_t ratio) : batch_(batch), ratio_(ratio) {}

  int64_t count() const { return FirstOf(batch_.items().size()); }
  bool CompletesAt(const BatchLayout::Token& token) const { return (token.position + 1) % ratio_ == 0; }
  // Row of the entry that `token` completes.
  int64_t RowOf(const BatchLayout::Token& token) const {
    const BatchLayout::Item& item = batch_.ItemOf(token);
    return FirstOf(static_cast<size_t>(token.item)) + token.position / ratio_ - item.start / ratio_;
  }

 private:
  int64_t FirstOf(size_t item) const {
    int64_t first = 0;
    for (const BatchLayout::Item& before : batch_.items().first(item)) {
      first += (before.start + before.n_tokens) / ratio_ - before.start / ratio_;
    }
    return first;
  }

  const BatchLayout& batch_;
  int64_t ratio_;
};

// Latent of the entry that token `t` completes, after its norm.
void FormLatent(const ForwardContext& ctx, const CompressorWeights& weights, int source, int64_t ratio,
                int64_t t, float* latent) {
  const int64_t dim = ctx.config().head_dim;
  const BatchLayout::Token& token = ctx.batch.tokens()[static_cast<size_t>(t)];
  const BatchLayout::Item& item = ctx.batch.ItemOf(token);
  const float* k = ctx.scratch.compress_kv.data() + t * dim;
  if (ratio == 1) {
    std::copy_n(k, dim, latent);
  } else {
    const float* s = ctx.scratch.compress_gate.data() + t * dim;
    const bool in_batch = t > item.first_token;
    const float* k0 = in_batch ? k - dim : item.state->partial_kv(source).data();
    const float* s0 = in_batch ? s - dim : item.state->partial_gate(source).data();
    MixPair(k0, s0, k, s, dim, latent);
  }
  kernels::RmsNorm(latent, weights.norm.data(), dim, static_cast<float>(ctx.config().rms_norm_eps), latent);
}

// Rotates, quantises and stores one completed entry; leaves the dequantised values in place of latent and
// key.
void StoreEntry(const ForwardContext& ctx, const CompressorWeights& weights, int source, int64_t ratio,
                const BatchLayout::Token& token, float* latent, float* key, std::span<float> angles) {
  const formats::ModelConfig& config = ctx.config();
  const int64_t pairs = ctx.compress_rope.pairs();
  const int64_t j = token.position / ratio;
  float* cos = angles.data();
  float* sin = cos + pairs;
  ctx.compress_rope.At(j * ratio, cos, sin);
  const EntryRef entry = ctx.batch.ItemOf(token).state->Entry(ctx.pages, source, j);

  kernels::RmsNorm(key, weights.index_k_norm.data(), config.index_head_dim,
                   static_cast<float>(config.rms_norm_eps), key);
  kernels::Rotate(key + config.index_head_dim - 2 * pairs, cos, sin, pairs);
  kernels::QuantizeQ4a(key, config.index_head_dim, entry.key_codes, entry.key_scales);

  kernels::Rotate(latent + config.head_dim - 2 * pairs, cos, sin, pairs);
  kernels::QuantizeQ4b(latent, config.head_dim, entry.latent_codes, entry.latent_scales);
  if (ctx.trace != nullptr) {
    kernels::DequantizeQ4a(entry.key_codes, entry.key_scales, config.index_head_dim, key);
    kernels::DequantizeQ4b(entry.latent_codes, entry.latent_scales, config.head_dim, latent);
  }
}

// Keeps the projections of a token whose group the next call completes.
void KeepPartials(const ForwardContext& ctx, int source, int64_t ratio) {
  if (ratio == 1) return;
  const int64_t dim = ctx.config().head_dim;
  for (const BatchLayout::Item& item : ctx.batch.items()) {
    if ((item.start + item.n_tokens) % ratio == 0) continue;
    const int64_t last = item.first_token + item.n_tokens - 1;
    std::copy_n(ctx.scratch.compress_kv.data() + last * dim, dim, item.state->partial_kv(source).data());
    std::copy_n(ctx.scratch.compress_gate.data() + last * dim, dim, item.state->partial_gate(source).data());
  }
}

}  // namespace

void CompressEntries(const ForwardContext& ctx, int l) {
  const LayerRole& role = ctx.plan.layers[static_cast<size_t>(l)];
  const CompressorWeights& weights = ctx.weights.layer(static_cast<size_t>(l)).compressor;
  const int source = *role.kv_source;
  const int64_t dim = ctx.config().head_dim;
  const int64_t index_dim = ctx.config().index_head_dim;
  const CompletedEntries entries(ctx.batch, role.ratio);

  ctx.ForEachToken([&](int64_t t, WorkerScratch&) {
    const BatchLayout::Token& token = ctx.batch.tokens()[static_cast<size_t>(t)];
    if (!entries.CompletesAt(token)) return;
    FormLatent(ctx, weights, source, role.ratio, t, ctx.scratch.latents.data() + entries.RowOf(token) * dim);
  });
  ctx.Trace(l, "latent", ctx.scratch.latents, {entries.count(), dim});

  MatMulJob keys = ctx.BatchJob(weights.index_wk, ctx.scratch.latents, ctx.scratch.index_k);
  keys.n_tokens = entries.count();
  ctx.RunMatMuls({keys});
  ctx.ForEachToken([&](int64_t t, WorkerScratch& worker) {
    const BatchLayout::Token& token = ctx.batch.tokens()[static_cast<size_t>(t)];
    if (!entries.CompletesAt(token)) return;
    if (token.position < ctx.batch.ItemOf(token).state->shared_tokens()) return;  // is stored, exact
    const int64_t row = entries.RowOf(token);
    StoreEntry(ctx, weights, source, role.ratio, token, ctx.scratch.latents.data() + row * dim,
               ctx.scratch.index_k.data() + row * index_dim, worker.row);
  });
  KeepPartials(ctx, source, role.ratio);
  ctx.Trace(l, "index_k", ctx.scratch.index_k, {entries.count(), index_dim});
  ctx.Trace(l, "compressed_kv", ctx.scratch.latents, {entries.count(), dim});
}

}  // namespace millrace::model
