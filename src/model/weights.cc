#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "base/codecs.h"
#include "kernels/matmul_rounded.h"

namespace millrace::model {

using formats::DType;
using kernels::WeightFormat;
using kernels::WeightMatrix;
using K = TensorKind;

// Looks tensors up for one layer.
class Weights::Binder {
 public:
  Binder(const Checkpoint& checkpoint, std::deque<std::vector<std::byte>>& realigned, int layer = 0)
      : checkpoint_(checkpoint), realigned_(realigned), layer_(layer) {}

  WeightMatrix Matrix(K kind, int expert = 0) const {
    const StoredTensor stored = checkpoint_.Get(kind, false, layer_, expert);
    MILLRACE_CHECK(stored.shape.size() == 2, "the catalogue says which tensors are matrices");
    WeightMatrix m;
    m.rows = stored.shape[0];
    m.cols = stored.shape[1];
    m.data = stored.bytes.data();
    switch (stored.dtype) {
      case DType::kF32:
        m.format = WeightFormat::kF32;
        m.data = Aligned(stored.bytes, alignof(float));
        break;
      case DType::kBF16:
        m.format = WeightFormat::kBf16;
        m.data = Aligned(stored.bytes, alignof(uint16_t));
        break;
      case DType::kF8E4M3:
        m.format = WeightFormat::kFp8Tile32;
        m.scales = checkpoint_.Get(kind, true, layer_, expert).bytes.data();
        break;
      case DType::kI8:
        m.format = WeightFormat::kFp4Row32;
        m.cols *= 2;
        m.scales = checkpoint_.Get(kind, true, layer_, expert).bytes.data();
        break;
      default:
        MILLRACE_CHECK(false, "no backbone matrix has another type in the catalogue");
    }
    return m;
  }

  // A vector (or small matrix) of BF16 or F32, decoded.
  std::vector<float> Floats(K kind) const {
    const StoredTensor stored = checkpoint_.Get(kind, false, layer_);
    std::vector<float> out;
    if (stored.dtype == DType::kF32) {
      out.resize(stored.bytes.size() / sizeof(float));
      std::memcpy(out.data(), stored.bytes.data(), stored.bytes.size());
      return out;
    }
    MILLRACE_CHECK(stored.dtype == DType::kBF16, "small backbone tensors are F32 or BF16 in the catalogue");
    out.resize(stored.bytes.size() / sizeof(uint16_t));
    for (size_t i = 0; i < out.size(); ++i) {
      uint16_t code;
      std::memcpy(&code, stored.bytes.data() + i * sizeof code, sizeof code);
      out[i] = Bf16ToFloat(code);
    }
    return out;
  }

  const uint8_t* Bytes(K kind, bool scale) const {
    return reinterpret_cast<const uint8_t*>(checkpoint_.Get(kind, scale, layer_).bytes.data());
  }

 private:
  const std::byte* Aligned(std::span<const std::byte> bytes, size_t alignment) const {
    if (reinterpret_cast<uintptr_t>(bytes.data()) % alignment == 0) return bytes.data();
    return realigned_.emplace_back(bytes.begin(), bytes.end()).data();
  }

  const Checkpoint& checkpoint_;
  std::deque<std::vector<std::byte>>& realigned_;
  int layer_;
};

namespace {

void BindExperts(const auto& bind, const formats::ModelConfig& config, LayerWeights& layer) {
  layer.experts.reserve(static_cast<size_t>(config.n_routed_experts));
  for (int e = 0; e < static_cast<int>(config.n_routed_experts); ++e) {
    layer.experts.push_back({.w1 = bind.Matrix(K::kExpertW1, e),
                             .w3 = bind.Matrix(K::kExpertW3, e),
                             .w2 = bind.Matrix(K::kExpertW2, e)});
  }
  layer.shared = {
      .w1 = bind.Matrix(K::kSharedW1), .w3 = bind.Matrix(K::kSharedW3), .w2 = bind.Matrix(K::kSharedW2)};
}

void BindSources(const auto& bind, const LayerRole& role, LayerWeights& layer) {
  if (role.owns_kv) {
    layer.compressor.wkv = bind.Matrix(K::kCompressorWkv);
    if (role.ratio > 1) layer.compressor.wgate = bind.Matrix(K::kCompressorWgate);
    layer.compressor.norm = bind.Floats(K::kCompressorNorm);
    layer.compressor.index_wk = bind.Matrix(K::kIndexerWk);
    layer.compressor.index_k_norm = bind.Floats(K::kIndexerKNorm);
  }
  if (role.owns_index) {
    layer.indexer = {.wq_b = bind.Matrix(K::kIndexerWqB),
                     .weights_proj = bind.Matrix(K::kIndexerWeightsProj)};
  }
  if (role.engram) {
    layer.engram.codes = bind.Bytes(K::kEngramEmbed, false);
    layer.engram.scales = bind.Bytes(K::kEngramEmbed, true);
    layer.engram.wkv = bind.Matrix(K::kEngramWkv);
    layer.engram.gain = bind.Floats(K::kEngramQWeight);
    const std::vector<float> k_weight = bind.Floats(K::kEngramKWeight);
    for (size_t i = 0; i < k_weight.size(); ++i) layer.engram.gain[i] *= k_weight[i];
  }
}

LayerWeights BindLayer(const auto& bind, const formats::ModelConfig& config, const LayerRole& role) {
  LayerWeights layer;
  layer.attn_norm = bind.Floats(K::kAttnNorm);
  layer.ffn_norm = bind.Floats(K::kFfnNorm);
  layer.q_norm = bind.Floats(K::kQNorm);
  layer.kv_norm = bind.Floats(K::kKvNorm);
  layer.attn_sink = bind.Floats(K::kAttnSink);
  layer.hc_attn = {.fn = bind.Matrix(K::kHcAttnFn),
                   .base = bind.Floats(K::kHcAttnBase),
                   .scale = bind.Floats(K::kHcAttnScale)};
  layer.hc_ffn = {.fn = bind.Matrix(K::kHcFfnFn),
                  .base = bind.Floats(K::kHcFfnBase),
                  .scale = bind.Floats(K::kHcFfnScale)};
  layer.wq_a = bind.Matrix(K::kWqA);
  layer.wq_b = bind.Matrix(K::kWqB);
  layer.wkv = bind.Matrix(K::kWkv);
  layer.wo_a = bind.Matrix(K::kWoA);
  layer.wo_b = bind.Matrix(K::kWoB);
  layer.gate = bind.Matrix(K::kGate);
  layer.gate_bias = bind.Floats(K::kGateBias);
  BindExperts(bind, config, layer);
  BindSources(bind, role, layer);
  return layer;
}

}  // namespace

Weights::Weights(const Checkpoint& checkpoint, const LayerPlan& plan, MemoryLedger* ledger) {
  const Binder top(checkpoint, realigned_);
  embed_ = top.Matrix(K::kEmbed);
  head_ = top.Matrix(K::kHead);
  norm_ = top.Floats(K::kNorm);
  layers_.reserve(plan.layers.size());
  for (size_t l = 0; l < plan.layers.size(); ++l) {
    layers_.push_back(
        BindLayer(Binder(checkpoint, realigned_, static_cast<int>(l)), plan.config, plan.layers[l]));
  }
  uint64_t realigned = 0;
  for (const std::vector<std::byte>& copy : realigned_) realigned += copy.size();
  held_ = HeldMemory(
      std::vector<PlannedMemory>{{"weights decoded", DecodedBytes(plan)}, {"weights realigned", realigned}},
      ledger);
}

uint64_t Weights::DecodedBytes(const LayerPlan& plan) {
  // What Binder::Floats is asked for.
  constexpr K kDecoded[] = {K::kNorm,         K::kAttnNorm,     K::kFfnNorm,    K::kQNorm,
                            K::kKvNorm,       K::kAttnSink,     K::kHcAttnBase, K::kHcAttnScale,
                            K::kHcFfnBase,    K::kHcFfnScale,   K::kGateBias,   K::kCompressorNorm,
                            K::kIndexerKNorm, K::kEngramQWeight};
  uint64_t floats = 0;
  for (const TensorSpec& tensor : BuildCatalogue(plan.config)) {
    const bool decoded = tensor.component == Component::kBackbone && !tensor.is_scale &&
                         std::ranges::find(kDecoded, tensor.kind) != std::end(kDecoded);
    if (!decoded) continue;
    uint64_t elements = 1;
    for (const int64_t dim : tensor.shape) elements *= static_cast<uint64_t>(dim);
    floats += elements;
  }
  const auto experts = static_cast<uint64_t>(plan.config.n_routed_experts);
  return floats * sizeof(float) +
         plan.layers.size() * (sizeof(LayerWeights) + experts * sizeof(ExpertWeights));
}

void Weights::MarkOrdinary(ThreadPool& pool) {
  std::vector<WeightMatrix*> matrices;
  for (LayerWeights& layer : layers_) {
    for (WeightMatrix* m : {&layer.wq_a, &layer.wq_b, &layer.wkv, &layer.wo_a, &layer.wo_b, &layer.shared.w1,
                            &layer.shared.w2, &layer.shared.w3, &layer.indexer.wq_b, &layer.engram.wkv}) {
      if (m->data != nullptr) matrices.push_back(m);
    }
  }
  pool.ParallelFor(matrices.size(), [&](size_t i, int) {
    matrices[i]->ordinary = IsOrdinary(*matrices[i]);
    matrices[i]->rounds_inputs = CanRoundInputs(*matrices[i]);
  });
}

}  // namespace millrace::model
