#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/hf_config.h"
#include "formats/safetensors.h"
#include "model/catalogue.h"
#include "model/inventory.h"

namespace millrace::model {

// One stored tensor in the map; lives as long as its Checkpoint.
struct StoredTensor {
  formats::DType dtype{};
  std::span<const int64_t> shape;
  std::span<const std::byte> bytes;
};

// One difference between what the config asks for and what the files hold.
struct Disagreement {
  // The part of the model that it spoils. Backbone: the checkpoint is refused; draft, vision: only that part
  // is.
  Component component{};
  std::string file;    // of the checkpoint directory; empty when no file can be named
  std::string tensor;  // empty when it concerns the whole file
  std::string found;
  std::string expected;

  // "model-00003-of-00004.safetensors: layers.1.attn.wkv.weight: found BF16 [64, 128], expected F8_E4M3 [64,
  // 128]". Control characters of names from files are escaped.
  std::string Text() const;
};

// Which scale tensors are read in search of byte 255, NaN in ue8m0. A NaN that is left out
// reaches the logits of the requests that use it, and ends them with an error. In the released checkpoint the
// dense scales are 7.2 MB, the experts' 17.4 GB (the drive's time, or a few seconds from memory), the engram
// tables' 6.1 GB; everything else about a checkpoint is checked from 10 MB of headers.
enum class ScaleScan : uint8_t {
  kDense,         // all but the experts and the engram tables
  kExceptTables,  // all but the engram tables
  kAll,
};

// The verified state of a checkpoint directory.
struct CheckpointReport {
  formats::ModelConfig config;
  std::vector<Disagreement> disagreements;
  Inventory found;              // what the readable shards hold
  uint64_t config_tensors = 0;  // what the config asks for
  uint64_t config_bytes = 0;

  // Whether drafting (or vision) can be used: the config has it and nothing about it disagrees.
  bool ComponentComplete(Component component) const;
  // The disagreements of one component, one a line, tensors of one file that differ in the same way together;
  // the first `max_lines` and the number of the others.
  std::string ListOf(Component component, size_t max_lines) const;
};

// A checkpoint directory: config.json (or inference/config.json), model.safetensors.index.json and its
// shards, mapped and checked against the catalogue. Mapping reads headers and the scales that `scan` names,
// no weights. Any thread may read.
class Checkpoint {
 public:
  // Reads config, index and every shard's header, and collects all disagreements (does not stop at the
  // first). An error only when there is nothing to compare: no directory, no readable config or index, a
  // config of another model family.
  static Result<CheckpointReport> Inspect(const std::filesystem::path& dir,
                                          ScaleScan scan = ScaleScan::kExceptTables);

  // Inspect, then refuse (kMismatch) when the backbone disagrees; the error lists the backbone's
  // disagreements. Draft and vision gaps are left in report() for the caller to announce. The engram tables'
  // scales are not scanned by default (ScaleScan).
  static Result<Checkpoint> Open(const std::filesystem::path& dir, ScaleScan scan = ScaleScan::kExceptTables);
  // The config of a checkpoint directory, without a look at the rest.
  static Result<formats::ModelConfig> ReadConfig(const std::filesystem::path& dir);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // Bytes that an object holds for a checkpoint of `catalogue`: names, shapes and places of all tensors.
  static uint64_t IndexBytes(std::span<const TensorSpec> catalogue);

  const std::filesystem::path& dir() const;
  const formats::ModelConfig& config() const;
  const CheckpointReport& report() const;
  // Arguments as of TensorName. CHECKs that the tensor exists: Open has proven it for every tensor of the
  // backbone's catalogue, and for the others' where report() calls the component complete.
  StoredTensor Get(TensorKind kind, bool scale, int layer = 0, int expert = 0,
                   Component component = Component::kBackbone) const;

 private:
  struct Impl;
  static Result<std::unique_ptr<Impl>> Load(const std::filesystem::path& dir, ScaleScan scan);
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::model
