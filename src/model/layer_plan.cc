#include "model/layer_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace millrace::model {
namespace {

using formats::ModelConfig;

// Collects every broken rule, so that one report names all of them.
class Rules {
 public:
  void Expect(bool holds, std::string complaint) {
    if (!holds) complaints_.push_back(std::move(complaint));
  }
  void MultipleOf(const char* key, int64_t value, int64_t block) {
    Expect(value > 0 && value % block == 0,
           fmt::format("{} is {}, expected a positive multiple of {} (the quantiser's block)", key, value,
                       block));
  }
  void Is(const char* key, const std::string& value, const char* supported) {
    Expect(value == supported, fmt::format("{} is '{}', only '{}' is supported", key, value, supported));
  }
  Status Report() const {
    if (complaints_.empty()) return {};
    std::string all = "config.json describes a model this engine cannot run:";
    for (const std::string& complaint : complaints_) all += "\n  " + complaint;
    return Error(ErrorCode::kMismatch, all);
  }

 private:
  std::vector<std::string> complaints_;
};

bool Contains(const std::vector<int64_t>& ids, int64_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

void CheckFixedChoices(const ModelConfig& c, Rules& rules) {
  rules.Is("quant_method", c.quant_method, "fp8");
  rules.Is("scale_fmt", c.scale_fmt, "ue8m0");
  rules.Is("expert_dtype", c.expert_dtype, "fp4");
  rules.Is("hidden_act", c.hidden_act, "silu");
  rules.Is("scoring_func", c.scoring_func, "sqrtsoftplus");
  rules.Is("topk_method", c.topk_method, "noaux_tc");
  rules.Expect(c.weight_block_size == std::vector<int64_t>{32, 32},
               "weight_block_size is not [32, 32], the only tile of this family");
  rules.Expect(c.norm_topk_prob, "norm_topk_prob is false, only true is supported");
  rules.Expect(!c.attention_bias, "attention_bias is true, only false is supported");
  rules.Expect(!c.tie_word_embeddings, "tie_word_embeddings is true, only false is supported");
  rules.Expect(c.num_key_value_heads == 1,
               fmt::format("num_key_value_heads is {}, only 1 is supported", c.num_key_value_heads));
  rules.Expect(c.n_shared_experts == 1,
               fmt::format("n_shared_experts is {}, only 1 is supported", c.n_shared_experts));
}

void CheckDimensions(const ModelConfig& c, Rules& rules) {
  rules.MultipleOf("hidden_size", c.hidden_size, 32);
  rules.MultipleOf("moe_intermediate_size", c.moe_intermediate_size, 32);
  rules.MultipleOf("head_dim", c.head_dim, 32);
  rules.MultipleOf("q_lora_rank", c.q_lora_rank, 32);
  rules.MultipleOf("o_lora_rank", c.o_lora_rank, 32);
  rules.MultipleOf("index_head_dim", c.index_head_dim, 32);
  rules.Expect(c.o_groups > 0 && c.num_attention_heads % c.o_groups == 0,
               fmt::format("num_attention_heads {} is not divisible by o_groups {}", c.num_attention_heads,
                           c.o_groups));
  rules.Expect(
      c.qk_rope_head_dim > 0 && c.qk_rope_head_dim % 2 == 0 &&
          c.qk_rope_head_dim <= std::min(c.head_dim, c.index_head_dim),
      fmt::format("qk_rope_head_dim is {}, expected an even number up to head_dim {} and index_head_dim {}",
                  c.qk_rope_head_dim, c.head_dim, c.index_head_dim));
  rules.Expect(c.hc_mult >= 1 && c.hc_mult <= 8, fmt::format("hc_mult is {}, expected 1 to 8", c.hc_mult));
  rules.Expect(c.hc_sinkhorn_iters >= 1,
               fmt::format("hc_sinkhorn_iters is {}, expected at least 1", c.hc_sinkhorn_iters));
  rules.Expect(c.num_experts_per_tok >= 1 && c.num_experts_per_tok <= c.n_routed_experts,
               fmt::format("num_experts_per_tok is {}, expected 1 to n_routed_experts {}",
                           c.num_experts_per_tok, c.n_routed_experts));
  rules.Expect(c.sliding_window >= 2,
               fmt::format("sliding_window is {}, expected at least 2", c.sliding_window));
  rules.Expect(c.index_topk >= 1 && c.candidate_topk_blocks >= 1 && c.candidate_block_size >= 1,
               "index_topk, candidate_topk_blocks and candidate_block_size must be at least 1");
  rules.Expect(c.gate_temp > 0, fmt::format("gate_temp is {}, expected a positive number", c.gate_temp));
}

void CheckEngram(const ModelConfig& c, Rules& rules) {
  if (c.engram_layer_ids.empty()) return;
  rules.Expect(c.engram_layer_ids.size() == c.engram_num_embeddings.size(),
               fmt::format("engram_num_embeddings has {} entries for {} engram layers",
                           c.engram_num_embeddings.size(), c.engram_layer_ids.size()));
  rules.Expect(c.engram_max_ngram_size >= 2 && c.engram_max_ngram_size <= 8,
               fmt::format("engram_max_ngram_size is {}, expected 2 to 8", c.engram_max_ngram_size));
  rules.MultipleOf("engram_head_dim", c.engram_head_dim, 32);
  const std::vector<int64_t>& ids = c.engram_layer_ids;
  rules.Expect(
      std::is_sorted(ids.begin(), ids.end()) && std::adjacent_find(ids.begin(), ids.end()) == ids.end(),
      "engram_layer_ids is not strictly ascending");
}

// The nearest source at or before `layer`.
std::optional<int> NearestSource(const std::vector<int64_t>& sources, int64_t layer) {
  std::optional<int> nearest;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i] <= layer) nearest = static_cast<int>(i);
  }
  return nearest;
}

void CheckSourceLists(const ModelConfig& c, Rules& rules) {
  const auto check = [&](const char* key, const std::vector<int64_t>& ids) {
    rules.Expect(
        std::is_sorted(ids.begin(), ids.end()) && std::adjacent_find(ids.begin(), ids.end()) == ids.end(),
        fmt::format("{} is not strictly ascending", key));
    for (int64_t id : ids) {
      const bool inside = id >= 0 && id < c.num_hidden_layers;
      rules.Expect(inside && c.compress_ratios[static_cast<size_t>(id)] > 0,
                   fmt::format("{} names layer {}, which has no compressed entries", key, id));
    }
  };
  check("kv_source_layer_ids", c.kv_source_layer_ids);
  check("index_source_layer_ids", c.index_source_layer_ids);
  for (int64_t id : c.engram_layer_ids) {
    rules.Expect(id >= 0 && id < c.num_hidden_layers,
                 fmt::format("engram_layer_ids names layer {}, outside the model", id));
  }
}

void CheckRoles(const LayerPlan& plan, Rules& rules) {
  const ModelConfig& c = plan.config;
  for (size_t l = 0; l < plan.layers.size(); ++l) {
    const LayerRole& role = plan.layers[l];
    if (role.ratio == 0) continue;
    rules.Expect(role.ratio <= 2,
                 fmt::format("compress_ratios[{}] is {}, expected 0, 1 or 2", l, role.ratio));
    const std::optional<int> index_source = NearestSource(c.index_source_layer_ids, static_cast<int64_t>(l));
    if (!role.kv_source || !index_source) {
      rules.Expect(false,
                   fmt::format("layer {} has ratio {} but no KV source and index source at or before it", l,
                               role.ratio));
      continue;
    }
    const auto kv_layer = static_cast<size_t>(plan.kv_sources[static_cast<size_t>(*role.kv_source)]);
    rules.Expect(c.compress_ratios[kv_layer] == role.ratio,
                 fmt::format("layer {} has ratio {} but its KV source, layer {}, has ratio {}", l, role.ratio,
                             kv_layer, c.compress_ratios[kv_layer]));
    const auto index_layer =
        static_cast<size_t>(c.index_source_layer_ids[static_cast<size_t>(*index_source)]);
    rules.Expect(plan.layers[index_layer].kv_source == role.kv_source,
                 fmt::format("layer {} reads KV source {} but its index source, layer {}, selects in another",
                             l, kv_layer, index_layer));
    if (role.uses_candidates) {
      const auto candidate = static_cast<size_t>(c.candidate_source_layer_id);
      rules.Expect(
          plan.layers[candidate].kv_source == role.kv_source,
          fmt::format("re-index layer {} and the candidate source, layer {}, do not share one KV source", l,
                      candidate));
    }
  }
}

}  // namespace

Result<LayerPlan> LayerPlan::Build(const ModelConfig& config) {
  Rules rules;
  const bool lists_fit = static_cast<int64_t>(config.compress_ratios.size()) == config.num_hidden_layers;
  rules.Expect(lists_fit && config.num_hidden_layers > 0,
               fmt::format("compress_ratios has {} entries for num_hidden_layers {}",
                           config.compress_ratios.size(), config.num_hidden_layers));
  MILLRACE_RETURN_IF_ERROR(rules.Report());
  CheckFixedChoices(config, rules);
  CheckDimensions(config, rules);
  CheckEngram(config, rules);
  CheckSourceLists(config, rules);
  rules.Expect(
      Contains(config.index_source_layer_ids, config.candidate_source_layer_id) ||
          config.index_source_layer_ids.empty(),
      fmt::format("candidate_source_layer_id {} is not an index source", config.candidate_source_layer_id));
  MILLRACE_RETURN_IF_ERROR(rules.Report());

  LayerPlan plan;
  plan.config = config;
  plan.kv_sources.assign(config.kv_source_layer_ids.begin(), config.kv_source_layer_ids.end());
  plan.engram_layers.assign(config.engram_layer_ids.begin(), config.engram_layer_ids.end());
  for (int64_t l = 0; l < config.num_hidden_layers; ++l) {
    LayerRole role;
    role.ratio = config.compress_ratios[static_cast<size_t>(l)];
    if (role.ratio > 0) {
      role.kv_source = NearestSource(config.kv_source_layer_ids, l);
      role.owns_kv = Contains(config.kv_source_layer_ids, l);
      role.owns_index = Contains(config.index_source_layer_ids, l);
      role.publishes_candidates = l == config.candidate_source_layer_id;
      role.uses_candidates = role.owns_index && l > config.candidate_source_layer_id;
    }
    const auto engram = std::find(plan.engram_layers.begin(), plan.engram_layers.end(), static_cast<int>(l));
    if (engram != plan.engram_layers.end())
      role.engram = static_cast<int>(engram - plan.engram_layers.begin());
    plan.layers.push_back(role);
  }
  CheckRoles(plan, rules);
  MILLRACE_RETURN_IF_ERROR(rules.Report());
  return plan;
}

int64_t LayerPlan::FirstEvaluated(int l, int64_t results_from) const {
  if (l < first_late_layer()) return 0;
  const auto layers_above = static_cast<int64_t>(layers.size()) - 1 - l;
  return std::max<int64_t>(0, results_from - layers_above * (config.sliding_window - 1));
}

int64_t LayerPlan::ReplayStart(int64_t shared_tokens, int64_t results_from) const {
  const int64_t reach = config.sliding_window - 1;
  // Layer l's input is exact l reaches behind the start: at `shared_tokens` in the last source, whose entries
  // go on there, and one reach before the first wanted results in the last layer.
  const int64_t for_entries = shared_tokens - first_late_layer() * reach;
  const int64_t for_results = results_from - static_cast<int64_t>(layers.size()) * reach;
  return std::max<int64_t>(0, std::min({shared_tokens, for_entries, for_results}) / 2 * 2);
}

}  // namespace millrace::model
