#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/hf_config.h"
#include "formats/safetensors.h"

namespace millrace::model {

// Every tensor of the architecture, by what it is. Suffix-free: a quantised matrix is one kind, its scale is
// derived (".weight" / ".scale"). The table in catalogue.cc gives each its name pattern, shape, stored type,
// layers and split.
enum class TensorKind : uint8_t {
  // outside the layers
  kEmbed,
  kHead,
  kNorm,
  // every layer (and every draft stage)
  kAttnNorm,
  kFfnNorm,
  kHcAttnFn,
  kHcAttnBase,
  kHcAttnScale,
  kHcFfnFn,
  kHcFfnBase,
  kHcFfnScale,
  kWqA,
  kQNorm,
  kWqB,
  kWkv,
  kKvNorm,
  kAttnSink,
  kWoA,
  kWoB,
  kGate,
  kGateBias,
  kGateBiasVl,
  kExpertW1,
  kExpertW2,
  kExpertW3,
  kSharedW1,
  kSharedW2,
  kSharedW3,
  // KV and index sources
  kCompressorWkv,
  kCompressorWgate,
  kCompressorNorm,
  kIndexerWqB,
  kIndexerWeightsProj,
  kIndexerWk,
  kIndexerKNorm,
  // engram layers
  kEngramEmbed,
  kEngramWkv,
  kEngramQWeight,
  kEngramKWeight,
  // draft stages only
  kDraftMainProj,
  kDraftMainNorm,
  kDraftNorm,
  kDraftMarkovEmbed,
  kDraftMarkovHead,
  kDraftConfidenceProj,
  // vision tower, aligner, span embeddings
  kVisionPatchProjWeight,
  kVisionPatchProjBias,
  kVisionNorm1,
  kVisionNorm2,
  kVisionWqkvWeight,
  kVisionWqkvBias,
  kVisionWoWeight,
  kVisionWoBias,
  kVisionMlpW1,
  kVisionMlpW2,
  kVisionNorm,
  kAlignerW1Weight,
  kAlignerW1Bias,
  kAlignerW2Weight,
  kAlignerW2Bias,
  kImageStart,
  kImageEnd,
  kImageNewline,
};

enum class Component : uint8_t { kBackbone, kDraft, kVision };
inline constexpr int kComponents = 3;

// Where a matrix's scales sit (shared/spec/v41-text.md, section 3.2).
enum class ScaleLayout : uint8_t {
  kNone,
  kTile32,  // fp8 tile: [ceil(rows/32), ceil(cols/32)]
  kRow32,   // fp4 experts and fp8 engram rows: [rows, cols/32] of the logical columns
};

// The rows of shared/spec/v41-checkpoint.md section 7.
enum class Category : uint8_t {
  kExpertWeights,
  kExpertScales,
  kAttention,
  kSharedExperts,
  kGates,
  kHyperConnections,
  kIndexers,
  kCompressors,
  kLayerNorms,
  kEmbedHeadNorm,
  kEngramTables,
  kEngramProjections,
  kDraftExperts,
  kDraftOther,
  kVision,
};
inline constexpr int kCategories = 15;

// How a tensor is divided over tensor- and expert-parallel ranks; the memory plan of later issues reads it.
enum class Split : uint8_t { kReplicated, kRows, kColumns, kExpert };

// One tensor as it must be stored.
struct TensorSpec {
  TensorKind kind{};
  bool is_scale = false;
  Component component{};
  Category category{};
  Split split{};
  std::string name;
  formats::DType dtype{};
  std::vector<int64_t> shape;  // stored shape: fp4 matrices have half the logical columns
  std::optional<int> layer;    // layer, draft stage or vision block
  std::optional<int> expert;
  int shard = 0;  // the file of the released layout that holds it, counted from 1 (section 4)

  uint64_t bytes() const;
};

// The checkpoint name of a tensor: its ".weight" (or sole) tensor, or its scale. `layer` is the draft stage
// when `component` is kDraft, the block in the vision tower. The one place that knows names.
std::string TensorName(TensorKind kind, bool scale, Component component = Component::kBackbone, int layer = 0,
                       int expert = 0);

// How the scales of `kind` lie; kNone for tensors that have no scale.
ScaleLayout ScaleLayoutOf(TensorKind kind);

// "text", "draft", "vision"; "routed experts, weights", ...
std::string_view ComponentName(Component component);
std::string_view CategoryName(Category category);

// Every tensor a checkpoint of `config` must hold, weights and scales, in the released shard order: vision,
// embed, layers, head, draft stages, engram. Parts the config does not have (no vision_config, no draft
// stages, no engram layers) have no tensors and no shard. The released config gives 96,085 tensors and
// 510,286,023,000 bytes. `config` is as formats::ParseHfConfig accepts it: sizes are positive.
std::vector<TensorSpec> BuildCatalogue(const formats::ModelConfig& config);

}  // namespace millrace::model
