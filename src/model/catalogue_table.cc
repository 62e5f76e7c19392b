#include "model/catalogue_table.h"

namespace millrace::model {
namespace {

using K = TensorKind;
using P = Place;
using C = Category;
using enum Encoding;
using enum Dim;
using enum Split;

// clang-format off
constexpr CatalogueRow kTable[] = {
    // kind, place, name, encoding, rows, columns, category, split
    {K::kEmbed, P::kEmbedding, "embed.weight", kBf16, kVocab, kHidden, C::kEmbedHeadNorm, kRows},
    {K::kHead, P::kOutput, "head.weight", kBf16, kVocab, kHidden, C::kEmbedHeadNorm, kRows},
    {K::kNorm, P::kOutput, "norm.weight", kBf16, kHidden, kVector, C::kEmbedHeadNorm, kReplicated},

    {K::kAttnNorm, P::kLayer, "attn_norm.weight", kBf16, kHidden, kVector, C::kLayerNorms, kReplicated},
    {K::kFfnNorm, P::kLayer, "ffn_norm.weight", kBf16, kHidden, kVector, C::kLayerNorms, kReplicated},
    {K::kHcAttnFn, P::kLayer, "hc_attn_fn", kF32, kMix, kStreamsHidden, C::kHyperConnections, kReplicated},
    {K::kHcAttnBase, P::kLayer, "hc_attn_base", kF32, kMix, kVector, C::kHyperConnections, kReplicated},
    {K::kHcAttnScale, P::kLayer, "hc_attn_scale", kF32, kMixScales, kVector, C::kHyperConnections, kReplicated},
    {K::kHcFfnFn, P::kLayer, "hc_ffn_fn", kF32, kMix, kStreamsHidden, C::kHyperConnections, kReplicated},
    {K::kHcFfnBase, P::kLayer, "hc_ffn_base", kF32, kMix, kVector, C::kHyperConnections, kReplicated},
    {K::kHcFfnScale, P::kLayer, "hc_ffn_scale", kF32, kMixScales, kVector, C::kHyperConnections, kReplicated},
    {K::kWqA, P::kLayer, "attn.wq_a.weight", kFp8Tile, kQLora, kHidden, C::kAttention, kReplicated},
    {K::kQNorm, P::kLayer, "attn.q_norm.weight", kBf16, kQLora, kVector, C::kAttention, kReplicated},
    {K::kWqB, P::kLayer, "attn.wq_b.weight", kFp8Tile, kQuery, kQLora, C::kAttention, kRows},
    {K::kWkv, P::kLayer, "attn.wkv.weight", kFp8Tile, kHeadDim, kHidden, C::kAttention, kReplicated},
    {K::kKvNorm, P::kLayer, "attn.kv_norm.weight", kBf16, kHeadDim, kVector, C::kAttention, kReplicated},
    {K::kAttnSink, P::kLayer, "attn.attn_sink", kF32, kHeads, kVector, C::kAttention, kRows},
    {K::kWoA, P::kLayer, "attn.wo_a.weight", kFp8Tile, kOutLora, kOutGroupInput, C::kAttention, kRows},
    {K::kWoB, P::kLayer, "attn.wo_b.weight", kFp8Tile, kHidden, kOutLora, C::kAttention, kColumns},
    {K::kGate, P::kLayer, "ffn.gate.weight", kBf16, kExperts, kHidden, C::kGates, kReplicated},
    {K::kGateBias, P::kLayer, "ffn.gate.bias", kF32, kExperts, kVector, C::kGates, kReplicated},
    {K::kGateBiasVl, P::kLayer, "ffn.gate.bias_vl", kF32, kExperts, kVector, C::kGates, kReplicated},
    {K::kExpertW1, P::kExpert, "ffn.experts.{e}.w1.weight", kFp4Row, kExpertWidth, kHidden, C::kExpertWeights, kExpert},
    {K::kExpertW2, P::kExpert, "ffn.experts.{e}.w2.weight", kFp4Row, kHidden, kExpertWidth, C::kExpertWeights, kExpert},
    {K::kExpertW3, P::kExpert, "ffn.experts.{e}.w3.weight", kFp4Row, kExpertWidth, kHidden, C::kExpertWeights, kExpert},
    {K::kSharedW1, P::kLayer, "ffn.shared_experts.w1.weight", kFp8Tile, kSharedWidth, kHidden, C::kSharedExperts, kRows},
    {K::kSharedW2, P::kLayer, "ffn.shared_experts.w2.weight", kFp8Tile, kHidden, kSharedWidth, C::kSharedExperts, kColumns},
    {K::kSharedW3, P::kLayer, "ffn.shared_experts.w3.weight", kFp8Tile, kSharedWidth, kHidden, C::kSharedExperts, kRows},

    {K::kCompressorWkv, P::kKvSource, "attn.compressor.wkv.weight", kBf16, kHeadDim, kHidden, C::kCompressors, kReplicated},
    {K::kCompressorWgate, P::kGroupingSource, "attn.compressor.wgate.weight", kBf16, kHeadDim, kHidden, C::kCompressors, kReplicated},
    {K::kCompressorNorm, P::kKvSource, "attn.compressor.norm.weight", kBf16, kHeadDim, kVector, C::kCompressors, kReplicated},
    {K::kIndexerWqB, P::kIndexSource, "attn.indexer.wq_b.weight", kFp8Tile, kIndexQuery, kQLora, C::kIndexers, kRows},
    {K::kIndexerWeightsProj, P::kIndexSource, "attn.indexer.weights_proj.weight", kBf16, kIndexHeads, kHidden, C::kIndexers, kRows},
    {K::kIndexerWk, P::kKvSource, "attn.indexer.wk.weight", kBf16, kIndexHeadDim, kHeadDim, C::kIndexers, kReplicated},
    {K::kIndexerKNorm, P::kKvSource, "attn.indexer.k_norm.weight", kBf16, kIndexHeadDim, kVector, C::kIndexers, kReplicated},

    {K::kEngramEmbed, P::kEngramLayer, "engram.embed.weight", kFp8Row, kEngramRows, kEngramHeadDim, C::kEngramTables, kRows},
    {K::kEngramWkv, P::kEngramLayer, "engram.wkv.weight", kFp8Tile, kEngramOutput, kEngramInput, C::kEngramProjections, kReplicated},
    {K::kEngramQWeight, P::kEngramLayer, "engram.q_weight", kBf16, kStreams, kHidden, C::kEngramProjections, kReplicated},
    {K::kEngramKWeight, P::kEngramLayer, "engram.k_weight", kBf16, kStreams, kHidden, C::kEngramProjections, kReplicated},

    {K::kDraftMainProj, P::kFirstStage, "main_proj.weight", kFp8Tile, kHidden, kTargetsHidden, C::kDraftOther, kReplicated},
    {K::kDraftMainNorm, P::kFirstStage, "main_norm.weight", kBf16, kHidden, kVector, C::kDraftOther, kReplicated},
    {K::kDraftNorm, P::kLastStage, "norm.weight", kBf16, kHidden, kVector, C::kDraftOther, kReplicated},
    {K::kDraftMarkovEmbed, P::kLastStage, "markov_head.embed.weight", kBf16, kVocab, kMarkovRank, C::kDraftOther, kRows},
    {K::kDraftMarkovHead, P::kLastStage, "markov_head.head.weight", kBf16, kVocab, kMarkovRank, C::kDraftOther, kRows},
    {K::kDraftConfidenceProj, P::kLastStage, "confidence_head.proj.weight", kBf16, kOne, kConfidence, C::kDraftOther, kReplicated},

    {K::kVisionPatchProjWeight, P::kVision, "vision.patch_embed.proj.weight", kBf16, kVisionHidden, kVisionPatch, C::kVision, kReplicated},
    {K::kVisionPatchProjBias, P::kVision, "vision.patch_embed.proj.bias", kBf16, kVisionHidden, kVector, C::kVision, kReplicated},
    {K::kVisionNorm1, P::kVisionBlock, "norm1.weight", kBf16, kVisionHidden, kVector, C::kVision, kReplicated},
    {K::kVisionNorm2, P::kVisionBlock, "norm2.weight", kBf16, kVisionHidden, kVector, C::kVision, kReplicated},
    {K::kVisionWqkvWeight, P::kVisionBlock, "attn.wqkv.weight", kBf16, kVisionQkv, kVisionHidden, C::kVision, kReplicated},
    {K::kVisionWqkvBias, P::kVisionBlock, "attn.wqkv.bias", kBf16, kVisionQkv, kVector, C::kVision, kReplicated},
    {K::kVisionWoWeight, P::kVisionBlock, "attn.wo.weight", kBf16, kVisionHidden, kVisionHidden, C::kVision, kReplicated},
    {K::kVisionWoBias, P::kVisionBlock, "attn.wo.bias", kBf16, kVisionHidden, kVector, C::kVision, kReplicated},
    {K::kVisionMlpW1, P::kVisionBlock, "mlp.w1.weight", kBf16, kVisionGateUp, kVisionHidden, C::kVision, kReplicated},
    {K::kVisionMlpW2, P::kVisionBlock, "mlp.w2.weight", kBf16, kVisionHidden, kVisionWidth, C::kVision, kReplicated},
    {K::kVisionNorm, P::kVision, "vision.norm.weight", kBf16, kVisionHidden, kVector, C::kVision, kReplicated},
    {K::kAlignerW1Weight, P::kVision, "aligner.w1.weight", kBf16, kHidden, kVisionMerged, C::kVision, kReplicated},
    {K::kAlignerW1Bias, P::kVision, "aligner.w1.bias", kBf16, kHidden, kVector, C::kVision, kReplicated},
    {K::kAlignerW2Weight, P::kVision, "aligner.w2.weight", kBf16, kHidden, kHidden, C::kVision, kReplicated},
    {K::kAlignerW2Bias, P::kVision, "aligner.w2.bias", kBf16, kHidden, kVector, C::kVision, kReplicated},
    {K::kImageStart, P::kImageSpan, "image_start", kBf16, kHidden, kVector, C::kVision, kReplicated},
    {K::kImageEnd, P::kImageSpan, "image_end", kBf16, kHidden, kVector, C::kVision, kReplicated},
    {K::kImageNewline, P::kImageSpan, "image_newline", kBf16, kHidden, kVector, C::kVision, kReplicated},
};
// clang-format on

static_assert(std::size(kTable) == static_cast<size_t>(TensorKind::kImageNewline) + 1);
static_assert([] {
  for (size_t i = 0; i < std::size(kTable); ++i)
    if (kTable[i].kind != static_cast<TensorKind>(i)) return false;
  return true;
}());

}  // namespace

std::span<const CatalogueRow> CatalogueRows() {
  return kTable;
}

}  // namespace millrace::model
