#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/ledger.h"
#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "model/checkpoint.h"
#include "model/layer_plan.h"

namespace millrace::model {

struct ExpertWeights {
  kernels::WeightMatrix w1, w3;  // gate and up [moe_intermediate_size, hidden]
  kernels::WeightMatrix w2;      // down [hidden, moe_intermediate_size]
};

// One site's hyper-connection parameters.
struct HyperConnectionWeights {
  kernels::WeightMatrix fn;  // [(2 + M) * M, M * hidden], f32
  std::vector<float> base;   // [(2 + M) * M]
  std::vector<float> scale;  // [3]
};

struct CompressorWeights {
  kernels::WeightMatrix wkv;        // [head_dim, hidden]
  kernels::WeightMatrix wgate;      // the same, ratio 2 only (rows 0 otherwise)
  std::vector<float> norm;          // [head_dim]
  kernels::WeightMatrix index_wk;   // [index_head_dim, head_dim]
  std::vector<float> index_k_norm;  // [index_head_dim]
};

struct IndexerWeights {
  kernels::WeightMatrix wq_b;          // [index_n_heads * index_head_dim, q_lora_rank]
  kernels::WeightMatrix weights_proj;  // [index_n_heads, hidden]
};

// One n-gram table and its projections.
struct EngramWeights {
  const uint8_t* codes = nullptr;   // e4m3 [rows, engram_head_dim]
  const uint8_t* scales = nullptr;  // ue8m0 [rows, engram_head_dim / 32]
  kernels::WeightMatrix wkv;        // [(M + 1) * hidden, columns * engram_head_dim]
  std::vector<float> gain;          // q_weight * k_weight [M, hidden]
};

struct LayerWeights {
  std::vector<float> attn_norm, ffn_norm, q_norm, kv_norm, attn_sink;
  HyperConnectionWeights hc_attn, hc_ffn;
  kernels::WeightMatrix wq_a, wq_b, wkv, wo_a, wo_b;
  kernels::WeightMatrix gate;
  std::vector<float> gate_bias;
  std::vector<ExpertWeights> experts;
  ExpertWeights shared;
  CompressorWeights compressor;  // KV sources
  IndexerWeights indexer;        // index sources
  EngramWeights engram;          // engram layers
};

// The backbone's weights as kernels see them: matrices are views into the checkpoint's map, small vectors
// (norms, biases) are decoded copies. Read-only after construction; the checkpoint outlives it.
class Weights {
 public:
  // Opens the accounts "weights decoded" and "weights realigned".
  Weights(const Checkpoint& checkpoint, const LayerPlan& plan, MemoryLedger* ledger);

  // Bytes of the decoded copies and of the views.
  static uint64_t DecodedBytes(const LayerPlan& plan);

  // Reads all fp8 matrices once and notes which are ordinary (kernels::WeightMatrix), as nearly all are.
  void MarkOrdinary(ThreadPool& pool);

  const LayerWeights& layer(size_t l) const { return layers_[l]; }
  const kernels::WeightMatrix& embed() const { return embed_; }
  const kernels::WeightMatrix& head() const { return head_; }
  const std::vector<float>& norm() const { return norm_; }

 private:
  class Binder;

  kernels::WeightMatrix embed_, head_;
  std::vector<float> norm_;
  std::vector<LayerWeights> layers_;
  // Copies of matrices whose bytes lie unaligned in their shard (float kernels need aligned rows).
  std::deque<std::vector<std::byte>> realigned_;
  HeldMemory held_;
};

}  // namespace millrace::model
