#include "model/synthetic_presets.h"

#include <array>

namespace millrace::model {
namespace {

using formats::ModelConfig;

constexpr std::array<std::string_view, 4> kNames = {"tiny", "bench", "long", "real-layer"};

// What the presets leave as released.
ModelConfig CommonConfig() {
  ModelConfig c;
  c.architecture = "DeepseekV41ForCausalLM";
  c.model_type = "deepseek_v41";
  c.bos_token_id = 0;
  c.eos_token_id = 1;
  c.pad_token_id = 2;
  c.quant_method = "fp8";
  c.weight_block_size = {32, 32};
  c.scale_fmt = "ue8m0";
  c.expert_dtype = "fp4";
  c.swiglu_limit = 10;
  c.rms_norm_eps = 1e-20;
  c.rope_theta = 10000;
  c.compress_rope_theta = 160000;
  c.n_shared_experts = 1;
  c.scoring_func = "sqrtsoftplus";
  c.topk_method = "noaux_tc";
  c.routed_scaling_factor = 1.5;
  c.hc_mult = 4;
  c.hc_sinkhorn_iters = 20;
  c.hc_eps = 1e-6;
  c.engram_max_ngram_size = 4;
  c.engram_pad_token_id = 2;
  return c;
}

// Every real dimension but the number of layers, experts and engram rows; neither drafts nor vision.
ModelConfig RealDimensions() {
  ModelConfig c = CommonConfig();
  c.vocab_size = 129280;
  c.hidden_size = 5120;
  c.moe_intermediate_size = 2304;
  c.num_attention_heads = 64;
  c.head_dim = 512;
  c.qk_rope_head_dim = 64;
  c.q_lora_rank = 1280;
  c.o_lora_rank = 1024;
  c.o_groups = 8;
  c.max_position_embeddings = 1048576;
  c.rope_scaling = {.factor = 16, .beta_fast = 32, .beta_slow = 1, .original_max_position_embeddings = 65536};
  c.sliding_window = 128;
  c.index_n_heads = 32;
  c.index_head_dim = 128;
  c.index_topk = 512;
  c.candidate_topk_blocks = 2048;
  c.candidate_block_size = 8;
  c.engram_n_heads = 8;
  c.engram_head_dim = 256;
  return c;
}

// The layer pattern and roles of the golden checkpoints: three KV sources, a candidate source with a re-index
// layer after it, reuse layers at either ratio, an engram layer that is also a KV source. Sizes differ from
// each other wherever the architecture lets them, so that mixed-up dimensions do not cancel. Window, top-k
// and candidate pool are shorter than a test's prompt, and the SwiGLU limit is low enough to clamp.
ModelConfig TinyConfig() {
  ModelConfig c = CommonConfig();
  c.vocab_size = 1024;
  c.hidden_size = 128;
  c.moe_intermediate_size = 64;
  c.num_hidden_layers = 8;
  c.num_attention_heads = 4;
  c.head_dim = 64;
  c.qk_rope_head_dim = 16;
  c.q_lora_rank = 160;
  c.o_lora_rank = 96;
  c.o_groups = 2;
  c.swiglu_limit = 2;
  c.max_position_embeddings = 65536;
  c.rope_scaling = {.factor = 16, .beta_fast = 32, .beta_slow = 1, .original_max_position_embeddings = 4096};
  c.n_routed_experts = 12;
  c.num_experts_per_tok = 3;
  c.sliding_window = 32;
  c.compress_ratios = {0, 0, 2, 2, 2, 1, 1, 1};
  c.kv_source_layer_ids = {2, 4, 5};
  c.index_source_layer_ids = {2, 4, 5, 6};
  c.index_n_heads = 12;
  c.index_head_dim = 32;
  c.index_topk = 16;
  c.candidate_source_layer_id = 5;
  c.candidate_topk_blocks = 6;
  c.candidate_block_size = 8;
  c.engram_layer_ids = {1, 4};
  c.engram_vocab_size = 700;
  c.engram_n_heads = 4;
  c.engram_head_dim = 32;
  c.num_nextn_predict_layers = 3;
  c.dspark_block_size = 5;
  c.dspark_target_layer_ids = {5, 6, 7};
  c.dspark_markov_rank = 48;
  c.dspark_n_routed_experts = 6;
  c.dspark_num_experts_per_tok = 2;
  c.vision_config = {.num_hidden_layers = 2,
                     .hidden_size = 64,
                     .num_attention_heads = 2,
                     .intermediate_size = 96,
                     .patch_size = 14,
                     .rope_theta = 10000,
                     .downsample_ratio = 3,
                     .max_image_tokens = 16,
                     .min_pixels = 1764,
                     .max_wh_ratio = std::nullopt};
  return c;
}

// The real matrices, fewer of them. An expert is the released 18.8 MB; an attention head, an output group,
// the low-rank projections, the shared expert and the indexer have the released shapes; there are 16 heads in
// 2 groups instead of 64 in 8. That leaves room for 7 layers: window only; two ratio-2 sources with a reuse
// layer between them; the candidate source; a re-index layer and one that reuses its selection. 42 experts
// of 18.8 MB are 790 MB, of which a token touches a third; 2 of 6 keeps the released balance of routed to
// dense bytes a token. The vocabulary and the engram tables, which have no part in a layer's cost, are small;
// an engram row is a quarter as wide, which keeps its projection from being a tenth of the file.
ModelConfig BenchConfig() {
  ModelConfig c = RealDimensions();
  c.vocab_size = 4096;
  c.num_hidden_layers = 7;
  c.num_attention_heads = 16;
  c.o_groups = 2;
  c.n_routed_experts = 6;
  c.num_experts_per_tok = 2;
  c.compress_ratios = {0, 2, 2, 2, 1, 1, 1};
  c.kv_source_layer_ids = {1, 3, 4};
  c.index_source_layer_ids = {1, 3, 4, 5};
  c.candidate_source_layer_id = 4;
  c.engram_layer_ids = {1};
  c.engram_vocab_size = 20000;
  c.engram_head_dim = 64;
  return c;
}

// Reading a million tokens costs a trillion comparisons of a query with a key: few index heads, and two
// sources of keys, the released model's kinds. Selection and window have their released sizes, so that a deep
// position attends to as much as there.
ModelConfig LongConfig() {
  ModelConfig c = TinyConfig();
  c.num_hidden_layers = 6;
  c.max_position_embeddings = int64_t{1} << 21;
  c.rope_scaling = {.factor = 32, .beta_fast = 32, .beta_slow = 1, .original_max_position_embeddings = 65536};
  c.sliding_window = 128;
  c.compress_ratios = {0, 2, 2, 1, 1, 1};
  c.kv_source_layer_ids = {1, 3};
  c.index_source_layer_ids = {1, 3, 4};
  c.index_n_heads = 4;
  c.index_topk = 512;
  c.candidate_source_layer_id = 3;
  c.candidate_topk_blocks = 2048;
  c.engram_layer_ids = {1};
  c.dspark_target_layer_ids = {3, 4, 5};
  return c;
}

// Two layers that between them own everything a layer can own.
ModelConfig RealLayerConfig() {
  ModelConfig c = RealDimensions();
  c.num_hidden_layers = 2;
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 6;
  c.compress_ratios = {2, 1};
  c.kv_source_layer_ids = {0, 1};
  c.index_source_layer_ids = {0, 1};
  c.candidate_source_layer_id = 1;
  c.engram_layer_ids = {0};
  c.engram_vocab_size = 1000;
  return c;
}

}  // namespace

std::string_view PresetName(SyntheticPreset preset) {
  return kNames[static_cast<size_t>(preset)];
}

ModelConfig PresetConfig(SyntheticPreset preset) {
  switch (preset) {
    case SyntheticPreset::kTiny:
      return TinyConfig();
    case SyntheticPreset::kBench:
      return BenchConfig();
    case SyntheticPreset::kLong:
      return LongConfig();
    case SyntheticPreset::kRealLayer:
      break;
  }
  return RealLayerConfig();
}

}  // namespace millrace::model
