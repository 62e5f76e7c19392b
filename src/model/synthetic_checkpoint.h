#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "formats/hf_config.h"
#include "formats/tokenizer_json.h"
#include "model/inventory.h"
#include "model/synthetic_presets.h"

namespace millrace::model {

struct SyntheticOptions {
  SyntheticPreset preset = SyntheticPreset::kTiny;
  uint64_t seed = 0;
  std::filesystem::path dir;
  bool overwrite = false;  // replace a checkpoint that lies in `dir`; its other files stay
};

struct SyntheticSummary {
  formats::ModelConfig config;
  Inventory inventory;
  uint64_t file_bytes = 0;
  std::vector<std::string> files;  // names in `dir`, in the order written
};

// The preset's config and tokenizer, each made to agree with the other.
struct SyntheticModel {
  formats::ModelConfig config;
  formats::TokenizerData tokenizer;
};
Result<SyntheticModel> MakeSyntheticModel(SyntheticPreset preset);

// Writes config.json, tokenizer.json, the shards and last of all the index: while the index is missing no
// reader takes the directory for a checkpoint. Errors: kInvalidArgument when `dir` is not empty (and not
// `overwrite`) or not a directory; kResourceExhausted when the disk has too little room; kIo. After an error
// the files written so far are removed. The bytes depend on preset and seed alone.
Result<SyntheticSummary> WriteSyntheticCheckpoint(const SyntheticOptions& options, ThreadPool& pool);

}  // namespace millrace::model
