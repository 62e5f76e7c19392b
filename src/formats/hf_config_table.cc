#include "formats/hf_config_table.h"

namespace millrace::formats {
namespace {

// Upper limits. Far above any released model, and low enough that the largest products stay inside int64:
// layers x experts x width x width x 3 matrices is below 2^60, a table's rows x width below 2^54.
constexpr int64_t kMaxLayers = 512;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = int64_t{1} << 14;
constexpr int64_t kMaxWidth = int64_t{1} << 18;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxTokens = int64_t{1} << 30;  // positions, windows, selections
constexpr int64_t kMaxTableRows = int64_t{1} << 40;
constexpr int64_t kMaxReal = 1'000'000'000'000;
constexpr int64_t kTile = 32;  // the one fp8 tile of the family; DeepSeek-V4 had 128

template <auto member>
ConfigSlot Of(ModelConfig& config) {
  return &(config.*member);
}
// The caller has made rope_scaling, or vision_config, hold a value.
template <auto member>
ConfigSlot OfRope(ModelConfig& config) {
  return &(config.rope_scaling.value().*member);
}
template <auto member>
ConfigSlot OfVision(ModelConfig& config) {
  return &(config.vision_config.value().*member);
}

using C = ModelConfig;
using R = RopeScaling;
using V = VisionConfig;
using S = ConfigSection;
using P = ConfigPresence;
using SlotOf = ConfigSlot (*)(ModelConfig&);

constexpr ConfigKey Integer(S section, std::string_view name, std::string_view flat, SlotOf slot, int64_t low,
                            int64_t high, P presence = P::kRequired) {
  return {.section = section,
          .name = name,
          .flat_name = flat,
          .slot = slot,
          .kind = ConfigKind::kInteger,
          .presence = presence,
          .low = low,
          .high = high};
}
constexpr ConfigKey Real(S section, std::string_view name, std::string_view flat, SlotOf slot,
                         P presence = P::kRequired) {
  return {.section = section,
          .name = name,
          .flat_name = flat,
          .slot = slot,
          .kind = ConfigKind::kReal,
          .presence = presence,
          .high = kMaxReal};
}
constexpr ConfigKey Integers(S section, std::string_view name, std::string_view flat, SlotOf slot,
                             int64_t high, P presence = P::kRequired) {
  return {.section = section,
          .name = name,
          .flat_name = flat,
          .slot = slot,
          .kind = ConfigKind::kIntegers,
          .presence = presence,
          .low = 0,
          .high = high,
          .max_length = kMaxLayers + kMaxDraftStages};
}
// `slot` may be null: then the value is checked and forgotten.
constexpr ConfigKey Text(S section, std::string_view name, std::string_view flat, SlotOf slot,
                         std::string_view only, P presence = P::kRequiredInComposite) {
  return {.section = section,
          .name = name,
          .flat_name = flat,
          .slot = slot,
          .kind = ConfigKind::kText,
          .presence = presence,
          .only = only};
}
constexpr ConfigKey Flag(S section, std::string_view name, SlotOf slot, bool flag) {
  return {.section = section,
          .name = name,
          .slot = slot,
          .kind = ConfigKind::kFlag,
          .presence = P::kRequiredInComposite,
          .flag = flag};
}
constexpr ConfigKey Unused(S section, std::string_view name, std::string_view json) {
  return {
      .section = section, .name = name, .kind = ConfigKind::kUnused, .presence = P::kOptional, .only = json};
}
constexpr ConfigKey Object(S section, std::string_view name, S child, P presence) {
  return {
      .section = section, .name = name, .kind = ConfigKind::kObject, .presence = presence, .child = child};
}
constexpr ConfigKey AlsoNamed(ConfigKey key, std::string_view alias) {
  key.alias = alias;
  return key;
}
constexpr ConfigKey KeepingPoint(ConfigKey key) {
  key.keeps_point = true;
  return key;
}
constexpr ConfigKey OneElement(ConfigKey key) {
  key.kind = ConfigKind::kTextList;
  return key;
}
constexpr ConfigKey AllEqual(ConfigKey key, int64_t value) {
  key.low = key.high = value;
  return key;
}

// clang-format off
constexpr ConfigKey kKeys[] = {
    OneElement(Text(S::kTop, "architectures", "", Of<&C::architecture>, "DeepseekV41ForCausalLM")),
    Text(S::kTop, "model_type", "", Of<&C::model_type>, "deepseek_v41"),
    Unused(S::kTop, "dtype", "\"bfloat16\""),
    Unused(S::kTop, "transformers_version", "\"5.6.0\""),
    Integer(S::kTop, "bos_token_id", "", Of<&C::bos_token_id>, 0, kMaxVocab, P::kRequiredInComposite),
    Integer(S::kTop, "eos_token_id", "", Of<&C::eos_token_id>, 0, kMaxVocab, P::kRequiredInComposite),
    Integer(S::kTop, "pad_token_id", "", Of<&C::pad_token_id>, 0, kMaxVocab, P::kRequiredInComposite),
    Integer(S::kTop, "image_token_id", "", Of<&C::image_token_id>, 0, kMaxVocab, P::kOptional),

    Object(S::kTop, "quantization_config", S::kQuantization, P::kRequired),
    Text(S::kQuantization, "quant_method", "dtype", Of<&C::quant_method>, "fp8", P::kRequired),
    Text(S::kQuantization, "activation_scheme", "", nullptr, "dynamic"),
    AllEqual(Integers(S::kQuantization, "weight_block_size", "", Of<&C::weight_block_size>, kTile,
                      P::kRequiredInComposite), kTile),
    Text(S::kQuantization, "scale_fmt", "", Of<&C::scale_fmt>, "ue8m0"),
    Text(S::kQuantization, "expert_dtype", "", Of<&C::expert_dtype>, "fp4", P::kRequired),

    Object(S::kTop, "text_config", S::kText, P::kRequired),
    Unused(S::kText, "model_type", "\"deepseek_v41_text\""),
    Integer(S::kText, "vocab_size", "", Of<&C::vocab_size>, 1, kMaxVocab),
    Integer(S::kText, "hidden_size", "dim", Of<&C::hidden_size>, 1, kMaxWidth),
    Integer(S::kText, "moe_intermediate_size", "moe_inter_dim", Of<&C::moe_intermediate_size>, 1, kMaxWidth),
    Integer(S::kText, "num_hidden_layers", "n_layers", Of<&C::num_hidden_layers>, 1, kMaxLayers),
    Integer(S::kText, "num_attention_heads", "n_heads", Of<&C::num_attention_heads>, 1, kMaxHeads),
    Integer(S::kText, "num_key_value_heads", "", Of<&C::num_key_value_heads>, 1, 1, P::kRequiredInComposite),
    Integer(S::kText, "head_dim", "", Of<&C::head_dim>, 1, kMaxHeadDim),
    Integer(S::kText, "qk_rope_head_dim", "rope_head_dim", Of<&C::qk_rope_head_dim>, 1, kMaxHeadDim),
    Integer(S::kText, "q_lora_rank", "", Of<&C::q_lora_rank>, 1, kMaxWidth),
    Integer(S::kText, "o_lora_rank", "", Of<&C::o_lora_rank>, 1, kMaxWidth),
    Integer(S::kText, "o_groups", "", Of<&C::o_groups>, 1, kMaxHeads),
    Text(S::kText, "hidden_act", "", Of<&C::hidden_act>, "silu"),
    KeepingPoint(Real(S::kText, "swiglu_limit", "", Of<&C::swiglu_limit>)),
    Real(S::kText, "rms_norm_eps", "norm_eps", Of<&C::rms_norm_eps>),
    Flag(S::kText, "attention_bias", Of<&C::attention_bias>, false),
    Unused(S::kText, "attention_dropout", "0.0"),
    Unused(S::kText, "initializer_range", "0.02"),
    Unused(S::kText, "use_cache", "true"),
    Flag(S::kText, "tie_word_embeddings", Of<&C::tie_word_embeddings>, false),
    Integer(S::kText, "max_position_embeddings", "", Of<&C::max_position_embeddings>, 1, kMaxTokens,
            P::kRequiredInComposite),
    Real(S::kText, "rope_theta", "", Of<&C::rope_theta>),
    Object(S::kText, "rope_scaling", S::kRope, P::kOptional),
    AlsoNamed(Text(S::kRope, "rope_type", "", nullptr, "yarn"), "type"),
    Real(S::kRope, "factor", "rope_factor", OfRope<&R::factor>),
    Real(S::kRope, "beta_fast", "", OfRope<&R::beta_fast>),
    Real(S::kRope, "beta_slow", "", OfRope<&R::beta_slow>),
    Integer(S::kRope, "original_max_position_embeddings", "original_seq_len",
            OfRope<&R::original_max_position_embeddings>, 1, kMaxTokens),
    Integer(S::kText, "n_routed_experts", "", Of<&C::n_routed_experts>, 1, kMaxExperts),
    Integer(S::kText, "n_shared_experts", "", Of<&C::n_shared_experts>, 0, kMaxExperts),
    Integer(S::kText, "num_experts_per_tok", "n_activated_experts", Of<&C::num_experts_per_tok>, 1, kMaxExperts),
    Text(S::kText, "scoring_func", "score_func", Of<&C::scoring_func>, "sqrtsoftplus"),
    Text(S::kText, "topk_method", "", Of<&C::topk_method>, "noaux_tc"),
    Flag(S::kText, "norm_topk_prob", Of<&C::norm_topk_prob>, true),
    Real(S::kText, "routed_scaling_factor", "route_scale", Of<&C::routed_scaling_factor>),
    Real(S::kText, "gate_temp", "", Of<&C::gate_temp>, P::kOptional),
    Integer(S::kText, "sliding_window", "window_size", Of<&C::sliding_window>, 1, kMaxTokens),
    Integers(S::kText, "compress_ratios", "", Of<&C::compress_ratios>, kMaxTokens),
    Real(S::kText, "compress_rope_theta", "", Of<&C::compress_rope_theta>),
    Integers(S::kText, "kv_source_layer_ids", "kv_source_layers", Of<&C::kv_source_layer_ids>, kMaxLayers),
    Integers(S::kText, "index_source_layer_ids", "index_source_layers", Of<&C::index_source_layer_ids>,
             kMaxLayers),
    Integer(S::kText, "index_n_heads", "", Of<&C::index_n_heads>, 1, kMaxHeads),
    Integer(S::kText, "index_head_dim", "", Of<&C::index_head_dim>, 1, kMaxHeadDim),
    Integer(S::kText, "index_topk", "", Of<&C::index_topk>, 1, kMaxTokens),
    Integer(S::kText, "candidate_source_layer_id", "candidate_source_layer", Of<&C::candidate_source_layer_id>,
            0, kMaxLayers),
    Integer(S::kText, "candidate_topk_blocks", "", Of<&C::candidate_topk_blocks>, 1, kMaxTokens),
    Integer(S::kText, "candidate_block_size", "", Of<&C::candidate_block_size>, 1, kMaxTokens),
    Integer(S::kText, "hc_mult", "", Of<&C::hc_mult>, 1, 64),
    Integer(S::kText, "hc_sinkhorn_iters", "", Of<&C::hc_sinkhorn_iters>, 1, 1000),
    Real(S::kText, "hc_eps", "", Of<&C::hc_eps>),
    Integers(S::kText, "engram_layer_ids", "", Of<&C::engram_layer_ids>, kMaxLayers),
    Integers(S::kText, "engram_num_embeddings", "", Of<&C::engram_num_embeddings>, kMaxTableRows,
             P::kWithEngram),
    Integer(S::kText, "engram_max_ngram_size", "", Of<&C::engram_max_ngram_size>, 2, 16, P::kWithEngram),
    Integer(S::kText, "engram_vocab_size", "", Of<&C::engram_vocab_size>, 1, kMaxTableRows, P::kWithEngram),
    Integer(S::kText, "engram_n_heads", "", Of<&C::engram_n_heads>, 1, kMaxHeads, P::kWithEngram),
    Integer(S::kText, "engram_head_dim", "", Of<&C::engram_head_dim>, 1, kMaxHeadDim, P::kWithEngram),
    AlsoNamed(Integer(S::kText, "engram_pad_token_id", "engram_pad_id", Of<&C::engram_pad_token_id>, 0, kMaxVocab,
                      P::kWithEngram), "engram_pad_id"),
    Integer(S::kText, "engram_compressed_vocab_size", "", Of<&C::engram_compressed_vocab_size>, 1, kMaxVocab,
            P::kWithEngram),
    Integer(S::kText, "num_nextn_predict_layers", "n_mtp_layers", Of<&C::num_nextn_predict_layers>, 0,
            kMaxDraftStages),
    Integer(S::kText, "dspark_block_size", "", Of<&C::dspark_block_size>, 1, kMaxTokens, P::kWithDraft),
    Integer(S::kText, "dspark_noise_token_id", "", Of<&C::dspark_noise_token_id>, 0, kMaxVocab, P::kWithDraft),
    Integers(S::kText, "dspark_target_layer_ids", "", Of<&C::dspark_target_layer_ids>, kMaxLayers, P::kWithDraft),
    Integer(S::kText, "dspark_markov_rank", "", Of<&C::dspark_markov_rank>, 1, kMaxWidth, P::kWithDraft),
    Integer(S::kText, "dspark_n_routed_experts", "", Of<&C::dspark_n_routed_experts>, 1, kMaxExperts,
            P::kWithDraft),
    Integer(S::kText, "dspark_num_experts_per_tok", "dspark_n_activated_experts",
            Of<&C::dspark_num_experts_per_tok>, 1, kMaxExperts, P::kWithDraft),

    Object(S::kTop, "vision_config", S::kVision, P::kOptional),
    Unused(S::kVision, "model_type", "\"deepseek_v41_vision\""),
    Integer(S::kVision, "num_hidden_layers", "vision_n_layers", OfVision<&V::num_hidden_layers>, 0, kMaxLayers),
    Integer(S::kVision, "hidden_size", "vision_dim", OfVision<&V::hidden_size>, 1, kMaxWidth),
    Integer(S::kVision, "num_attention_heads", "vision_n_heads", OfVision<&V::num_attention_heads>, 1, kMaxHeads),
    Integer(S::kVision, "intermediate_size", "vision_inter_dim", OfVision<&V::intermediate_size>, 1, kMaxWidth),
    Integer(S::kVision, "patch_size", "vision_patch_size", OfVision<&V::patch_size>, 1, 1024),
    Real(S::kVision, "rope_theta", "vision_rope_theta", OfVision<&V::rope_theta>),
    Integer(S::kVision, "downsample_ratio", "vision_downsample_ratio", OfVision<&V::downsample_ratio>, 1, 64),
    Integer(S::kVision, "max_image_tokens", "vision_max_n_token", OfVision<&V::max_image_tokens>, 1, kMaxTokens),
    Integer(S::kVision, "min_pixels", "vision_min_pixels", OfVision<&V::min_pixels>, 1, kMaxTokens),
    Real(S::kVision, "max_wh_ratio", "vision_max_wh_ratio", OfVision<&V::max_wh_ratio>, P::kNullable),
};
// clang-format on

}  // namespace

std::span<const ConfigKey> ConfigKeys() {
  return kKeys;
}

std::string_view ConfigSectionPrefix(ConfigSection section) {
  switch (section) {
    case ConfigSection::kTop:
      return "";
    case ConfigSection::kQuantization:
      return "quantization_config.";
    case ConfigSection::kText:
      return "text_config.";
    case ConfigSection::kRope:
      return "text_config.rope_scaling.";
    case ConfigSection::kVision:
      return "vision_config.";
  }
  return "";
}

}  // namespace millrace::formats
