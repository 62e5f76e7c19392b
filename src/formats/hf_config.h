#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace millrace::formats {

// rope_scaling of type yarn.
struct RopeScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_position_embeddings = 0;

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

struct VisionConfig {
  int64_t num_hidden_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t patch_size = 0;
  double rope_theta = 10000;
  int64_t downsample_ratio = 0;
  int64_t max_image_tokens = 0;
  int64_t min_pixels = 0;
  std::optional<double> max_wh_ratio;

  friend bool operator==(const VisionConfig&, const VisionConfig&) = default;
};

// What a checkpoint's config.json says, under the released names (shared/spec/v41-checkpoint.md, sections
// 2-3). Field names equal the keys. Only facts of the file; what follows from them is model/layer_plan.h.
struct ModelConfig {
  std::string architecture;  // "DeepseekV41ForCausalLM"
  std::string model_type;    // "deepseek_v41"

  // top level
  TokenId bos_token_id = 0;
  TokenId eos_token_id = 1;
  TokenId pad_token_id = 2;
  std::optional<TokenId> image_token_id;

  // quantization_config
  std::string quant_method;  // "fp8"
  std::vector<int64_t> weight_block_size;
  std::string scale_fmt;     // "ue8m0"
  std::string expert_dtype;  // "fp4"

  // text_config
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t moe_intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 1;
  int64_t head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t q_lora_rank = 0;
  int64_t o_lora_rank = 0;
  int64_t o_groups = 0;
  std::string hidden_act = "silu";
  double swiglu_limit = 0;
  double rms_norm_eps = 0;
  bool attention_bias = false;
  bool tie_word_embeddings = false;
  int64_t max_position_embeddings = 0;
  double rope_theta = 0;
  double compress_rope_theta = 0;
  std::optional<RopeScaling> rope_scaling;
  int64_t n_routed_experts = 0;
  int64_t n_shared_experts = 0;
  int64_t num_experts_per_tok = 0;
  std::string scoring_func;  // "sqrtsoftplus"
  std::string topk_method;   // "noaux_tc"
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1;
  double gate_temp = 1;
  int64_t sliding_window = 0;
  // num_hidden_layers entries; the draft layers' trailing zeros of the file are checked and cut off.
  std::vector<int64_t> compress_ratios;
  std::vector<int64_t> kv_source_layer_ids;
  std::vector<int64_t> index_source_layer_ids;
  int64_t index_n_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;
  int64_t candidate_source_layer_id = 0;
  int64_t candidate_topk_blocks = 0;
  int64_t candidate_block_size = 0;
  int64_t hc_mult = 0;
  int64_t hc_sinkhorn_iters = 0;
  double hc_eps = 0;
  std::vector<int64_t> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;
  int64_t engram_max_ngram_size = 0;
  int64_t engram_vocab_size = 0;
  int64_t engram_n_heads = 0;
  int64_t engram_head_dim = 0;
  TokenId engram_pad_token_id = 2;
  int64_t engram_compressed_vocab_size = 0;
  int64_t num_nextn_predict_layers = 0;  // draft stages
  int64_t dspark_block_size = 0;
  TokenId dspark_noise_token_id = 0;
  std::vector<int64_t> dspark_target_layer_ids;
  int64_t dspark_markov_rank = 0;
  int64_t dspark_n_routed_experts = 0;
  int64_t dspark_num_experts_per_tok = 0;

  std::optional<VisionConfig> vision_config;

  // Keys of the file that mean nothing to this reader, with their path ("text_config.new_thing"), as they
  // stand in the file: print them through Quoted. Worth a warning, because the model may have been trained
  // with something that is not run.
  std::vector<std::string> unknown_keys;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Reads the text of a config.json in the released composite layout or in the flat inference/config.json
// spelling (decided by the keys present). Errors name the key, the value found and what is accepted; all
// problems of one file are reported in one message. kCorrupt: not strict JSON; kMismatch: another model
// family (DeepSeek-V4 for one) or values that cannot be. Accepted sizes are bounded so that no tensor shape,
// and no sum over the whole model in bytes, overflows int64. How the keys hang together is checked only as
// far as lengths and ranges of ids go; the rest is model/layer_plan.h.
//
// A flat file says less. What it leaves out is filled in only where there is one possible value: the tokens'
// ids, the fixed choices of the architecture, and max_position_embeddings = original_seq_len x rope_factor.
Result<ModelConfig> ParseHfConfig(std::string_view json);

// Reads `path`, which may be the file or the checkpoint directory that holds config.json. Errors carry the
// path.
Result<ModelConfig> ReadHfConfig(const std::filesystem::path& path);

// The released composite layout, two-space indent and final newline, without unknown_keys; the released
// config.json comes back byte for byte. ParseHfConfig(WriteHfConfig(c)) == c for a `c` without unknown_keys
// that ParseHfConfig accepts.
std::string WriteHfConfig(const ModelConfig& config);

}  // namespace millrace::formats
