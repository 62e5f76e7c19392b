#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace::model {

inline constexpr std::string_view kIndexFileName = "model.safetensors.index.json";

// The released spelling of shard file names: "model-00003-of-00048.safetensors".
std::string ShardFileName(size_t number, size_t count);
bool IsShardFileName(std::string_view name);

// The content of a checkpoint's index: which shard holds each tensor, and the payload of all of them.
struct CheckpointIndex {
  std::vector<std::pair<std::string, std::string>>
      weight_map;           // tensor name -> shard file name, file's order
  uint64_t total_size = 0;  // bytes
};

// Strict: a repeated tensor name, a shard name that is not a plain "*.safetensors" file name, a missing or
// non-integer total_size are errors (kCorrupt) that name the entry.
Result<CheckpointIndex> ParseCheckpointIndex(std::string_view json);

// Reads `dir`/model.safetensors.index.json. Errors carry the path.
Result<CheckpointIndex> ReadCheckpointIndex(const std::filesystem::path& dir);

// One entry a line, as released. ParseCheckpointIndex(WriteCheckpointIndex(i)) == i.
std::string WriteCheckpointIndex(const CheckpointIndex& index);

}  // namespace millrace::model
