#include <algorithm>

#include "kernels/engram_gate.h"
#include "kernels/quantize.h"
#include "model/sites.h"

namespace millrace::model {
namespace {

// Decodes the rows of one token, concatenated in column order.
void GatherRows(const EngramWeights& weights, std::span<const int64_t> ids, int64_t row_dim, float* out) {
  for (size_t column = 0; column < ids.size(); ++column) {
    kernels::DequantizeQ8(weights.codes + ids[column] * row_dim,
                          weights.scales + ids[column] * (row_dim / 32), row_dim,
                          out + static_cast<int64_t>(column) * row_dim);
  }
}

}  // namespace

void HashNgrams(const ForwardContext& ctx) {
  const int64_t n_layers = ctx.engram.n_layers();
  if (n_layers == 0) return;
  const int64_t columns = ctx.engram.columns();
  const int64_t history = ctx.engram.max_ngram() - 1;
  for (const BatchLayout::Item& item : ctx.batch.items()) {
    std::span<int32_t> classes = ctx.scratch.class_window.first(static_cast<size_t>(history + item.n_tokens));
    std::copy(item.state->ngram_history.begin(), item.state->ngram_history.end(), classes.begin());
    for (int64_t i = 0; i < item.n_tokens; ++i) {
      const TokenId id = ctx.batch.tokens()[static_cast<size_t>(item.first_token + i)].id;
      classes[static_cast<size_t>(history + i)] = ctx.engram.ClassOf(id);
    }
    for (int64_t i = 0; i < item.n_tokens; ++i) {
      const auto window = classes.subspan(static_cast<size_t>(i), static_cast<size_t>(history + 1));
      for (int64_t layer = 0; layer < n_layers; ++layer) {
        const int64_t at = ((item.first_token + i) * n_layers + layer) * columns;
        ctx.engram.Rows(static_cast<int>(layer), window,
                        ctx.scratch.row_ids.subspan(static_cast<size_t>(at), static_cast<size_t>(columns)));
      }
    }
    std::copy(classes.end() - history, classes.end(), item.state->ngram_history.begin());
  }
  if (ctx.trace != nullptr) {
    const int64_t shape[] = {ctx.batch.n_tokens(), n_layers, columns};
    ctx.trace->OnIntegers(
        "hash_ids", ctx.scratch.row_ids.first(static_cast<size_t>(shape[0] * n_layers * columns)), shape);
  }
}

void WriteEngram(const ForwardContext& ctx, int l) {
  const LayerRole& role = ctx.plan.layers[static_cast<size_t>(l)];
  const EngramWeights& weights = ctx.weights.layer(static_cast<size_t>(l)).engram;
  const int64_t hidden = ctx.config().hidden_size;
  const int64_t streams = ctx.config().hc_mult;
  const int64_t columns = ctx.engram.columns();
  const int64_t row_dim = ctx.config().engram_head_dim;
  const auto eps = static_cast<float>(ctx.config().rms_norm_eps);
  ctx.ForEachToken([&](int64_t t, WorkerScratch&) {
    const int64_t at = (t * ctx.engram.n_layers() + *role.engram) * columns;
    float* const rows = ctx.scratch.engram_rows.data() + t * columns * row_dim;
    GatherRows(weights, ctx.scratch.row_ids.subspan(static_cast<size_t>(at), static_cast<size_t>(columns)),
               row_dim, rows);
    if (ctx.Rounds(weights.wkv)) kernels::RoundInputs(rows, 0, columns * row_dim, rows);
  });
  MatMulJob job = ctx.BatchJob(weights.wkv, ctx.scratch.engram_rows, ctx.scratch.engram_kv);
  if (ctx.Rounds(weights.wkv)) job = ctx.OfRounded(job);
  ctx.RunMatMuls({job});
  ctx.ForEachToken([&](int64_t t, WorkerScratch& worker) {
    const float* kv = ctx.scratch.engram_kv.data() + t * (streams + 1) * hidden;
    const float* value = kv + streams * hidden;
    for (int64_t j = 0; j < streams; ++j) {
      float* x = ctx.scratch.streams.data() + (t * streams + j) * hidden;
      const float gate = kernels::EngramGate(x, weights.gain.data() + j * hidden, kv + j * hidden, hidden,
                                             eps, worker.row.data());
      ctx.scratch.engram_gate[static_cast<size_t>(t * streams + j)] = gate;
      for (int64_t d = 0; d < hidden; ++d) x[d] += gate * value[d];
    }
  });
  ctx.Trace(l, "engram_gate", ctx.scratch.engram_gate, {ctx.batch.n_tokens(), streams});
  ctx.Trace(l, "streams_engram", ctx.scratch.streams, {ctx.batch.n_tokens(), streams, hidden});
}

}  // namespace millrace::model
