#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/catalogue.h"

// The table behind catalogue.h: one row a tensor of the architecture. Everything that names, sizes, places or
// divides a tensor walks it (shared/spec/v41-checkpoint.md, section 5).

namespace millrace::model {

// A dimension as a function of the config; the comment gives the released value.
enum class Dim : uint8_t {
  kVector,         // no such dimension: the tensor is a vector
  kOne,            // 1
  kVocab,          // 129280
  kHidden,         // 5120
  kQLora,          // 1280
  kQuery,          // heads * head_dim = 32768
  kHeads,          // 64
  kHeadDim,        // 512
  kOutGroupInput,  // heads / groups * head_dim = 4096
  kOutLora,        // groups * o_lora_rank = 8192
  kExperts,        // 384; in the draft stages 128
  kExpertWidth,    // 2304
  kSharedWidth,    // shared experts * 2304
  kStreams,        // hc_mult = 4
  kStreamsHidden,  // hc_mult * hidden = 20480
  kMix,            // (2 + hc_mult) * hc_mult = 24
  kMixScales,      // 3
  kIndexQuery,     // index heads * index head dim = 4096
  kIndexHeads,     // 32
  kIndexHeadDim,   // 128
  kEngramRows,     // 384006168 in layer 1, 384016682 in layer 14
  kEngramHeadDim,  // 256
  kEngramInput,    // (max n-gram - 1) * heads * head dim = 6144
  kEngramOutput,   // (hc_mult + 1) * hidden = 25600
  kTargetsHidden,  // draft target layers * hidden = 15360
  kMarkovRank,     // 256
  kConfidence,     // hidden + Markov rank = 5376
  kVisionHidden,   // 1024
  kVisionQkv,      // 3 * 1024
  kVisionPatch,    // 3 colours * patch * patch = 588
  kVisionGateUp,   // 2 * 2816
  kVisionWidth,    // 2816
  kVisionMerged,   // downsample * downsample * 1024 = 9216
};

// Where a tensor occurs, and with it the prefix of its name.
enum class Place : uint8_t {
  kEmbedding,       // once; beside the embedding
  kOutput,          // once; beside the head
  kLayer,           // layers.{L}. of every layer, and mtp.{s}. of every draft stage
  kExpert,          // the same, for each expert of the layer or stage
  kKvSource,        // layers.{L}. of the KV sources
  kGroupingSource,  // layers.{L}. of the KV sources whose ratio is above 1
  kIndexSource,     // layers.{L}. of the index sources
  kEngramLayer,     // layers.{L}. of the engram layers
  kFirstStage,      // mtp.0.
  kLastStage,       // mtp.{last}.
  kVision,          // once, if there is a vision tower
  kVisionBlock,     // vision.blocks.{b}.
  kImageSpan,       // once, if there is a vision tower; stored beside the embedding
};

// How a tensor's values are stored (shared/spec/v41-text.md, section 3.2).
enum class Encoding : uint8_t {
  kBf16,
  kF32,
  kFp8Tile,  // F8_E4M3, a scale per 32 x 32 tile
  kFp8Row,   // F8_E4M3, a scale per 32 columns of a row
  kFp4Row,   // I8 of two e2m1 values, a scale per 32 columns of a row
};

struct CatalogueRow {
  TensorKind kind;
  Place place;
  std::string_view name;  // after the place's prefix; "{e}" is the expert
  Encoding encoding;
  Dim rows;  // logical: packed 4-bit values are stored with half the columns
  Dim cols;
  Category category;  // of the backbone; a draft stage has kDraftExperts for kExpertWeights, else kDraftOther
  Split split;
};

// Every kind, in the order of TensorKind.
std::span<const CatalogueRow> CatalogueRows();

}  // namespace millrace::model
