#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/hf_config.h"
#include "formats/safetensors.h"
#include "model/catalogue.h"

namespace millrace::model {

// One stored tensor in the map; lives as long as its Checkpoint.
struct StoredTensor {
  formats::DType dtype{};
  std::span<const int64_t> shape;
  std::span<const std::byte> bytes;
};

// One difference between the catalogue and the files.
struct Disagreement {
  Component
      component{};   // backbone: fatal; draft, vision: that component is refused, the text model can serve
  std::string file;  // shard or index file name; empty when no file can be named
  std::string tensor;
  std::string found;
  std::string expected;

  std::string Text()
      const;  // "model-00003-of-00004.safetensors: layers.1.attn.wkv.weight: found ..., expected ..."
};

// The verified state of a checkpoint directory.
struct CheckpointReport {
  formats::ModelConfig config;
  std::vector<Disagreement> disagreements;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  bool ComponentComplete(Component component) const;
};

// A checkpoint directory: config.json, model.safetensors.index.json and its shards, mapped and checked
// against the catalogue. Any thread may read.
class Checkpoint {
 public:
  // Reads config, index and every shard's header, and collects all disagreements (does not stop at the
  // first). An error only when there is nothing to compare: no directory, no readable config or index.
  static Result<CheckpointReport> Inspect(const std::filesystem::path& dir);

  // Inspect, then refuse when the backbone disagrees; the error lists every backbone disagreement. Draft and
  // vision gaps are left in report() for the caller to announce.
  static Result<Checkpoint> Open(const std::filesystem::path& dir);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::filesystem::path& dir() const;
  const formats::ModelConfig& config() const;
  const CheckpointReport& report() const;
  // CHECKs that the tensor exists: Open has proven it for every tensor of the backbone's catalogue.
  StoredTensor Get(TensorKind kind, bool scale, int layer = 0, int expert = 0) const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::model
