#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "model/catalogue.h"
#include "model/checkpoint.h"
#include "model/checkpoint_index.h"
#include "model/inventory.h"

// The comparison behind Checkpoint: what the catalogue asks for against what index and shards hold
// (shared/spec/v41-checkpoint.md, section 9).

namespace millrace::model {

// A shard that the index names or that lies beside it.
struct Shard {
  std::string name;
  Result<formats::SafetensorsFile> file;
};

// A stored tensor that the catalogue asks for, right or wrong in shape and type.
struct Match {
  const TensorSpec* spec = nullptr;
  const Shard* shard = nullptr;
  const formats::TensorInfo* info = nullptr;

  bool AsExpected() const { return info->dtype == spec->dtype && info->shape == spec->shape; }
  std::span<const std::byte> Bytes() const { return shard->file.value().Bytes(*info); }
};

struct CheckOutcome {
  std::vector<Disagreement> disagreements;
  std::vector<Match> matches;  // in catalogue order
  Inventory found;             // of the readable shards
};

// Names, places, types, shapes and sizes; reads headers only. The outcome points into the arguments.
CheckOutcome CompareWithCatalogue(std::span<const TensorSpec> catalogue, const CheckpointIndex& index,
                                  std::span<const Shard> shards);

// The matches whose scale bytes hold 255, NaN in ue8m0, among those that `scan` covers.
std::vector<Disagreement> FindNanScales(std::span<const Match> matches, ScaleScan scan);

}  // namespace millrace::model
