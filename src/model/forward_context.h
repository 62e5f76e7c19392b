#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <span>
#include <string_view>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "kernels/rope.h"
#include "model/batch_layout.h"
#include "model/forward.h"
#include "model/forward_scratch.h"
#include "model/weights.h"

namespace millrace::model {

// Rows [row_begin, row_end) of a job, by one thread.
void MultiplyRows(const MatMulJob& job, int64_t row_begin, int64_t row_end, const WorkerScratch& worker);

// What the sites of the forward pass share during one Run. Lives in Forward; one thread, with the pool's
// help.
struct ForwardContext {
  const LayerPlan& plan;
  const Weights& weights;
  const PageLayout& pages;
  const EngramHash& engram;
  const kernels::RopeTable& main_rope;      // layers with ratio 0
  const kernels::RopeTable& compress_rope;  // layers with ratio > 0
  ThreadPool& pool;
  ForwardScratch& scratch;
  BatchLayout& batch;
  Numerics numerics = Numerics::kReference;
  LayerTrace* trace = nullptr;

  const formats::ModelConfig& config() const { return plan.config; }

  // Runs fn(t, worker scratch) for every token of the batch.
  void ForEachToken(FunctionRef<void(int64_t t, WorkerScratch& worker)> fn) const {
    pool.ParallelFor(static_cast<size_t>(batch.n_tokens()), [&](size_t t, int worker) {
      fn(static_cast<int64_t>(t), scratch.workers[static_cast<size_t>(worker)]);
    });
  }

  // Runs all jobs as one loop over blocks of rows. No job reads what another writes.
  void RunMatMuls(std::span<const MatMulJob> jobs) const;
  void RunMatMuls(std::initializer_list<MatMulJob> jobs) const {
    RunMatMuls(std::span(jobs.begin(), jobs.size()));
  }
  // The rotation of batch token `t` in a layer of this role: cos and sin [qk_rope_head_dim / 2].
  const float* Cos(const LayerRole& role, int64_t t) const {
    return (role.ratio == 0 ? scratch.main_cos : scratch.compress_cos).data() + t * main_rope.pairs();
  }
  const float* Sin(const LayerRole& role, int64_t t) const {
    return (role.ratio == 0 ? scratch.main_sin : scratch.compress_sin).data() + t * main_rope.pairs();
  }

  // Takes the tokens that the layer leaves out (BatchLayout::BeginLayer) away from the batch and from every
  // array that is still needed of them.
  void LeaveOut() const;

  // All rows of `a` for all tokens of the batch.
  MatMulJob BatchJob(const kernels::WeightMatrix& a, std::span<const float> x, std::span<float> y) const {
    return {.a = &a,
            .x = {.base = x.data(), .stride = a.cols},
            .n_tokens = batch.n_tokens(),
            .y = y.data(),
            .y_stride = a.rows,
            .row_end = a.rows};
  }

  // The same for the tokens that the layer keeps, in the rows that they will have: a job that may run in one
  // loop with those for all tokens.
  MatMulJob KeptJob(const kernels::WeightMatrix& a, std::span<const float> x, std::span<float> y) const {
    MatMulJob job = BatchJob(a, x, y);
    job.x.index = batch.kept_rows();
    job.n_tokens = batch.n_kept();
    return job;
  }

  // Whether products of `a` take rounded inputs.
  bool Rounds(const kernels::WeightMatrix& a) const { return numerics == Numerics::kFast && a.rounds_inputs; }
  // The job with vectors that lie at `base` as its inputs do, but rounded.
  static MatMulJob OfRounded(MatMulJob job, const float* base);
  static MatMulJob OfRounded(const MatMulJob& job) { return OfRounded(job, job.x.base); }

  // Hands "L<layer>.<name>" to the trace, if there is one. The first dimension of `shape` counts rows of
  // `values`.
  void Trace(int layer, std::string_view name, std::span<const float> values,
             std::initializer_list<int64_t> shape) const {
    if (trace == nullptr) return;
    size_t n = 1;
    for (int64_t d : shape) n *= static_cast<size_t>(d);
    trace->OnTensor(fmt::format("L{}.{}", layer, name), values.first(n),
                    std::span(shape.begin(), shape.size()));
  }
};

}  // namespace millrace::model
