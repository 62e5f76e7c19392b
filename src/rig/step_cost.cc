#include "rig/step_cost.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "model/catalogue_table.h"

namespace millrace::rig {
namespace {

using model::Category;
using model::LayerPlan;
using model::LayerRole;
using model::TensorKind;
using model::TensorSpec;

// n-gram rows that one token looks up in one table.
uint64_t TableRowsOfAToken(const formats::ModelConfig& config) {
  return static_cast<uint64_t>((config.engram_max_ngram_size - 1) * config.engram_n_heads);
}

bool IsExpert(TensorKind kind) {
  return kind == TensorKind::kExpertW1 || kind == TensorKind::kExpertW2 || kind == TensorKind::kExpertW3;
}

bool IsRead(const TensorSpec& spec) {
  return spec.component == model::Component::kBackbone && spec.kind != TensorKind::kGateBiasVl;
}

// Which tokens of a prompt a matrix is multiplied with.
enum class Multiplied : uint8_t {
  kNever,     // vectors, tables
  kArriving,  // all that come to the layer
  kKept,      // those that the layer hands on
  kEntries,   // the compressed entries that they complete
  kLast,      // the one whose logits are wanted
};

Multiplied MultipliedWith(const TensorSpec& spec) {
  if (spec.is_scale || spec.shape.size() != 2) return Multiplied::kNever;
  switch (spec.kind) {
    case TensorKind::kHead:
      return Multiplied::kLast;
    case TensorKind::kHcAttnFn:
    case TensorKind::kWkv:
    case TensorKind::kCompressorWkv:
    case TensorKind::kCompressorWgate:
    case TensorKind::kEngramWkv:
      return Multiplied::kArriving;
    case TensorKind::kIndexerWk:
      return Multiplied::kEntries;
    case TensorKind::kEmbed:
    case TensorKind::kEngramEmbed:
    case TensorKind::kEngramQWeight:
    case TensorKind::kEngramKWeight:
      return Multiplied::kNever;
    default:
      return Multiplied::kKept;
  }
}

// Multiply-adds with one vector.
uint64_t Elements(const TensorSpec& spec) {
  const model::CatalogueRow& row = model::CatalogueRows()[static_cast<size_t>(spec.kind)];
  const auto stored = static_cast<uint64_t>(spec.shape[0] * spec.shape[1]);
  return row.encoding == model::Encoding::kFp4Row ? 2 * stored : stored;
}

// The tokens of a prompt that each layer sees.
class Prompt {
 public:
  Prompt(const LayerPlan& plan, int64_t n_tokens, model::LateLayers late)
      : plan_(plan), n_tokens_(n_tokens), late_(late) {}

  int64_t size() const { return n_tokens_; }
  // The first position that layer `l` hands on.
  int64_t FirstKept(int l) const {
    return late_ == model::LateLayers::kAll ? 0 : plan_.FirstEvaluated(l, n_tokens_ - 1);
  }
  uint64_t Count(Multiplied multiplied, int l) const {
    const int64_t arriving = n_tokens_ - (l == 0 ? 0 : FirstKept(l - 1));
    switch (multiplied) {
      case Multiplied::kNever:
        break;
      case Multiplied::kArriving:
        return static_cast<uint64_t>(arriving);
      case Multiplied::kKept:
        return static_cast<uint64_t>(n_tokens_ - FirstKept(l));
      case Multiplied::kEntries:
        return static_cast<uint64_t>(n_tokens_ / plan_.layers[static_cast<size_t>(l)].ratio);
      case Multiplied::kLast:
        return 1;
    }
    return 0;
  }

 private:
  const LayerPlan& plan_;
  int64_t n_tokens_;
  model::LateLayers late_;
};

// Rows that a query at `position` attends to.
uint64_t AttendedRows(const formats::ModelConfig& config, const LayerRole& role, int64_t position) {
  int64_t rows = std::min(position + 1, config.sliding_window);
  if (role.ratio > 0) rows += std::min((position + 1) / role.ratio, config.index_topk);
  return static_cast<uint64_t>(rows);
}

// Index keys that a query at `position` is scored against: none while all of them are taken anyway.
uint64_t ScoredKeys(const formats::ModelConfig& config, const LayerRole& role, int64_t position) {
  if (!role.owns_index) return 0;
  const int64_t entries = (position + 1) / role.ratio;
  const int64_t candidates = config.candidate_topk_blocks * config.candidate_block_size;
  if (entries <= config.index_topk && entries <= candidates) return 0;
  return static_cast<uint64_t>(role.uses_candidates ? std::min(entries, candidates) : entries);
}

}  // namespace

uint64_t ByCategory::total() const {
  return std::accumulate(of.begin(), of.end(), uint64_t{0});
}

ByCategory DecodeBytes(const LayerPlan& plan) {
  ByCategory bytes;
  uint64_t expert_weights = 0;
  uint64_t expert_scales = 0;
  for (const TensorSpec& spec : model::BuildCatalogue(plan.config)) {
    if (!IsRead(spec)) continue;
    const auto rows = static_cast<uint64_t>(spec.shape[0]);
    if (IsExpert(spec.kind)) {
      (spec.is_scale ? expert_scales : expert_weights) += spec.bytes();
    } else if (spec.kind == TensorKind::kEmbed) {
      bytes[spec.category] += spec.bytes() / rows;
    } else if (spec.kind == TensorKind::kEngramEmbed) {
      bytes[spec.category] += spec.bytes() / rows * TableRowsOfAToken(plan.config);
    } else {
      bytes[spec.category] += spec.bytes();
    }
  }
  // All experts are of one size, so this divides.
  const auto chosen = static_cast<uint64_t>(plan.config.num_experts_per_tok);
  const auto experts = static_cast<uint64_t>(plan.config.n_routed_experts);
  bytes[Category::kExpertWeights] += expert_weights / experts * chosen;
  bytes[Category::kExpertScales] += expert_scales / experts * chosen;
  return bytes;
}

PrefillWork CountPrefill(const LayerPlan& plan, int64_t n_tokens, model::LateLayers late) {
  const formats::ModelConfig& config = plan.config;
  const Prompt prompt(plan, n_tokens, late);
  PrefillWork work;
  for (const TensorSpec& spec : model::BuildCatalogue(config)) {
    if (!IsRead(spec)) continue;
    const Multiplied multiplied = MultipliedWith(spec);
    if (multiplied == Multiplied::kNever) continue;
    // Every token meets num_experts_per_tok of the experts: count the first so many, for all tokens.
    if (spec.expert && *spec.expert >= config.num_experts_per_tok) continue;
    work.weights[spec.category] += Elements(spec) * prompt.Count(multiplied, spec.layer.value_or(0));
  }
  const auto head_elements = static_cast<uint64_t>(config.num_attention_heads * config.head_dim);
  const auto index_elements = static_cast<uint64_t>(config.index_n_heads * config.index_head_dim);
  for (int l = 0; l < static_cast<int>(plan.layers.size()); ++l) {
    const LayerRole& role = plan.layers[static_cast<size_t>(l)];
    for (int64_t position = prompt.FirstKept(l); position < n_tokens; ++position) {
      work.attention += 2 * head_elements * AttendedRows(config, role, position);
      work.index += index_elements * ScoredKeys(config, role, position);
    }
  }
  return work;
}

}  // namespace millrace::rig
