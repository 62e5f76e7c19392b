#include "model/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "model/catalogue_table.h"

namespace millrace::model {
namespace {

using formats::DType;
using formats::ModelConfig;

constexpr std::string_view kWeightSuffix = ".weight";
constexpr std::string_view kScaleSuffix = ".scale";
constexpr std::string_view kExpertPlaceholder = "{e}";
constexpr int64_t kScaleBlock = 32;
constexpr int64_t kImageColours = 3;
constexpr int64_t kMixScales = 3;  // one for each of pre, post and combine

// In the order of the enums.
constexpr std::array<std::string_view, kComponents> kComponentNames = {"text", "draft", "vision"};
constexpr std::array<std::string_view, kCategories> kCategoryNames = {
    "routed experts, weights",
    "routed experts, scales",
    "attention",
    "shared experts",
    "gates",
    "hyper-connections",
    "indexers",
    "compressors",
    "layer norms",
    "embed, head, norm",
    "engram tables",
    "engram projections",
    "draft experts",
    "draft, everything else",
    "vision, aligner, span embeddings",
};

const CatalogueRow& RowOf(TensorKind kind) {
  return CatalogueRows()[static_cast<size_t>(kind)];
}

DType StoredType(Encoding encoding) {
  switch (encoding) {
    case Encoding::kBf16:
      return DType::kBF16;
    case Encoding::kF32:
      return DType::kF32;
    case Encoding::kFp8Tile:
    case Encoding::kFp8Row:
      return DType::kF8E4M3;
    case Encoding::kFp4Row:
      return DType::kI8;
  }
  MILLRACE_CHECK(false, "an enumerator without a case");
}

ScaleLayout LayoutOf(Encoding encoding) {
  switch (encoding) {
    case Encoding::kBf16:
    case Encoding::kF32:
      return ScaleLayout::kNone;
    case Encoding::kFp8Tile:
      return ScaleLayout::kTile32;
    case Encoding::kFp8Row:
    case Encoding::kFp4Row:
      return ScaleLayout::kRow32;
  }
  MILLRACE_CHECK(false, "an enumerator without a case");
}

bool Contains(const std::vector<int64_t>& ids, int64_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

int64_t RatioOf(const ModelConfig& c, int layer) {
  const auto l = static_cast<size_t>(layer);
  return l < c.compress_ratios.size() ? c.compress_ratios[l] : 0;
}

int64_t EngramRows(const ModelConfig& c, int layer) {
  const auto at = std::find(c.engram_layer_ids.begin(), c.engram_layer_ids.end(), layer);
  const auto i = static_cast<size_t>(at - c.engram_layer_ids.begin());
  return i < c.engram_num_embeddings.size() ? c.engram_num_embeddings[i] : 0;
}

int64_t VisionDim(const formats::VisionConfig& v, Dim dim) {
  switch (dim) {
    case Dim::kVisionHidden:
      return v.hidden_size;
    case Dim::kVisionQkv:
      return 3 * v.hidden_size;
    case Dim::kVisionPatch:
      return kImageColours * v.patch_size * v.patch_size;
    case Dim::kVisionGateUp:
      return 2 * v.intermediate_size;
    case Dim::kVisionWidth:
      return v.intermediate_size;
    case Dim::kVisionMerged:
      return v.downsample_ratio * v.downsample_ratio * v.hidden_size;
    default:
      MILLRACE_CHECK(false, "not a dimension of the vision tower");
  }
}

// `layer` matters only to the engram tables, `component` only to the number of experts.
int64_t DimValue(const ModelConfig& c, Dim dim, Component component, int layer) {
  switch (dim) {
    case Dim::kVector:
      break;
    case Dim::kOne:
      return 1;
    case Dim::kVocab:
      return c.vocab_size;
    case Dim::kHidden:
      return c.hidden_size;
    case Dim::kQLora:
      return c.q_lora_rank;
    case Dim::kQuery:
      return c.num_attention_heads * c.head_dim;
    case Dim::kHeads:
      return c.num_attention_heads;
    case Dim::kHeadDim:
      return c.head_dim;
    case Dim::kOutGroupInput:
      return c.num_attention_heads * c.head_dim / c.o_groups;
    case Dim::kOutLora:
      return c.o_groups * c.o_lora_rank;
    case Dim::kExperts:
      return component == Component::kDraft ? c.dspark_n_routed_experts : c.n_routed_experts;
    case Dim::kExpertWidth:
      return c.moe_intermediate_size;
    case Dim::kSharedWidth:
      return c.n_shared_experts * c.moe_intermediate_size;
    case Dim::kStreams:
      return c.hc_mult;
    case Dim::kStreamsHidden:
      return c.hc_mult * c.hidden_size;
    case Dim::kMix:
      return (2 + c.hc_mult) * c.hc_mult;
    case Dim::kMixScales:
      return kMixScales;
    case Dim::kIndexQuery:
      return c.index_n_heads * c.index_head_dim;
    case Dim::kIndexHeads:
      return c.index_n_heads;
    case Dim::kIndexHeadDim:
      return c.index_head_dim;
    case Dim::kEngramRows:
      return EngramRows(c, layer);
    case Dim::kEngramHeadDim:
      return c.engram_head_dim;
    case Dim::kEngramInput:
      return (c.engram_max_ngram_size - 1) * c.engram_n_heads * c.engram_head_dim;
    case Dim::kEngramOutput:
      return (c.hc_mult + 1) * c.hidden_size;
    case Dim::kTargetsHidden:
      return static_cast<int64_t>(c.dspark_target_layer_ids.size()) * c.hidden_size;
    case Dim::kMarkovRank:
      return c.dspark_markov_rank;
    case Dim::kConfidence:
      return c.hidden_size + c.dspark_markov_rank;
    case Dim::kVisionHidden:
    case Dim::kVisionQkv:
    case Dim::kVisionPatch:
    case Dim::kVisionGateUp:
    case Dim::kVisionWidth:
    case Dim::kVisionMerged:
      MILLRACE_CHECK(c.vision_config, "vision tensors are listed only where the config has vision");
      return VisionDim(*c.vision_config, dim);
  }
  MILLRACE_CHECK(false, "an enumerator without a case");
}

std::string Prefix(Place place, Component component, int layer) {
  switch (place) {
    case Place::kEmbedding:
    case Place::kOutput:
    case Place::kVision:
    case Place::kImageSpan:
      return "";
    case Place::kVisionBlock:
      return fmt::format("vision.blocks.{}.", layer);
    case Place::kFirstStage:
    case Place::kLastStage:
      return fmt::format("mtp.{}.", layer);
    default:
      return fmt::format("{}.{}.", component == Component::kDraft ? "mtp" : "layers", layer);
  }
}

Category CategoryIn(Component component, const CatalogueRow& row, bool scale) {
  if (component == Component::kDraft)
    return row.place == Place::kExpert ? Category::kDraftExperts : Category::kDraftOther;
  if (scale && row.category == Category::kExpertWeights) return Category::kExpertScales;
  return row.category;
}

int64_t BlocksOf(int64_t n) {
  return (n + kScaleBlock - 1) / kScaleBlock;
}

// Walks the places of a model in the order of the released shards and lists the rows of each.
class CatalogueBuilder {
 public:
  explicit CatalogueBuilder(const ModelConfig& config) : c_(config) {}

  std::vector<TensorSpec> Build() && {
    if (c_.vision_config) AddVision();
    StartShard();
    AddPlace(Place::kEmbedding, Component::kBackbone, 0);
    if (c_.vision_config) AddPlace(Place::kImageSpan, Component::kVision, 0);
    for (int l = 0; l < c_.num_hidden_layers; ++l) AddLayer(l);
    StartShard();
    AddPlace(Place::kOutput, Component::kBackbone, 0);
    for (int s = 0; s < c_.num_nextn_predict_layers; ++s) AddStage(s);
    for (int l = 0; l < c_.num_hidden_layers; ++l) {
      if (!Contains(c_.engram_layer_ids, l)) continue;
      StartShard();
      AddPlace(Place::kEngramLayer, Component::kBackbone, l);
    }
    return std::move(specs_);
  }

 private:
  void StartShard() { ++shard_; }

  void AddVision() {
    StartShard();
    AddPlace(Place::kVision, Component::kVision, 0);
    for (int b = 0; b < c_.vision_config->num_hidden_layers; ++b)
      AddPlace(Place::kVisionBlock, Component::kVision, b);
  }

  void AddLayer(int l) {
    StartShard();
    const bool kv_source = Contains(c_.kv_source_layer_ids, l);
    AddPlace(Place::kLayer, Component::kBackbone, l);
    if (kv_source) AddPlace(Place::kKvSource, Component::kBackbone, l);
    if (kv_source && RatioOf(c_, l) > 1) AddPlace(Place::kGroupingSource, Component::kBackbone, l);
    if (Contains(c_.index_source_layer_ids, l)) AddPlace(Place::kIndexSource, Component::kBackbone, l);
    for (int e = 0; e < c_.n_routed_experts; ++e) AddPlace(Place::kExpert, Component::kBackbone, l, e);
  }

  void AddStage(int s) {
    StartShard();
    AddPlace(Place::kLayer, Component::kDraft, s);
    if (s == 0) AddPlace(Place::kFirstStage, Component::kDraft, s);
    if (s == c_.num_nextn_predict_layers - 1) AddPlace(Place::kLastStage, Component::kDraft, s);
    for (int e = 0; e < c_.dspark_n_routed_experts; ++e) AddPlace(Place::kExpert, Component::kDraft, s, e);
  }

  void AddPlace(Place place, Component component, int layer, int expert = 0) {
    for (const CatalogueRow& row : CatalogueRows()) {
      if (row.place != place) continue;
      if (row.category == Category::kSharedExperts && c_.n_shared_experts == 0) continue;
      AddTensor(row, component, layer, expert);
      if (LayoutOf(row.encoding) != ScaleLayout::kNone) AddScale(row, component, layer, expert);
    }
  }

  TensorSpec& Append(const CatalogueRow& row, bool scale, Component component, int layer, int expert) {
    TensorSpec& spec = specs_.emplace_back();
    spec.kind = row.kind;
    spec.is_scale = scale;
    spec.component = component;
    spec.category = CategoryIn(component, row, scale);
    spec.split = row.split;
    spec.name = TensorName(row.kind, scale, component, layer, expert);
    spec.shard = shard_;
    const bool once = row.place == Place::kEmbedding || row.place == Place::kOutput ||
                      row.place == Place::kVision || row.place == Place::kImageSpan;
    if (!once) spec.layer = layer;
    if (row.place == Place::kExpert) spec.expert = expert;
    return spec;
  }

  void AddTensor(const CatalogueRow& row, Component component, int layer, int expert) {
    TensorSpec& spec = Append(row, false, component, layer, expert);
    spec.dtype = StoredType(row.encoding);
    spec.shape = {DimValue(c_, row.rows, component, layer)};
    if (row.cols == Dim::kVector) return;
    const int64_t cols = DimValue(c_, row.cols, component, layer);
    spec.shape.push_back(row.encoding == Encoding::kFp4Row ? cols / 2 : cols);
  }

  void AddScale(const CatalogueRow& row, Component component, int layer, int expert) {
    TensorSpec& spec = Append(row, true, component, layer, expert);
    const int64_t rows = DimValue(c_, row.rows, component, layer);
    const int64_t cols = DimValue(c_, row.cols, component, layer);
    spec.dtype = DType::kF8E8M0;
    spec.shape = {LayoutOf(row.encoding) == ScaleLayout::kTile32 ? BlocksOf(rows) : rows, BlocksOf(cols)};
  }

  const ModelConfig& c_;
  std::vector<TensorSpec> specs_;
  int shard_ = 0;
};

}  // namespace

uint64_t TensorSpec::bytes() const {
  uint64_t count = formats::DTypeBytes(dtype);
  for (const int64_t dim : shape) count *= static_cast<uint64_t>(dim);
  return count;
}

std::string TensorName(TensorKind kind, bool scale, Component component, int layer, int expert) {
  const CatalogueRow& row = RowOf(kind);
  std::string name = Prefix(row.place, component, layer);
  const size_t hole = row.name.find(kExpertPlaceholder);
  if (hole == std::string_view::npos) {
    name += row.name;
  } else {
    name += row.name.substr(0, hole);
    name += std::to_string(expert);
    name += row.name.substr(hole + kExpertPlaceholder.size());
  }
  if (!scale) return name;
  MILLRACE_CHECK(LayoutOf(row.encoding) != ScaleLayout::kNone, "only quantised tensors have a scale");
  name.resize(name.size() - kWeightSuffix.size());
  return name += kScaleSuffix;
}

ScaleLayout ScaleLayoutOf(TensorKind kind) {
  return LayoutOf(RowOf(kind).encoding);
}

std::string_view ComponentName(Component component) {
  return kComponentNames[static_cast<size_t>(component)];
}

std::string_view CategoryName(Category category) {
  return kCategoryNames[static_cast<size_t>(category)];
}

std::vector<TensorSpec> BuildCatalogue(const ModelConfig& config) {
  return CatalogueBuilder(config).Build();
}

}  // namespace millrace::model
