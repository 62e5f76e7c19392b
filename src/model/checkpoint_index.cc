#include "model/checkpoint_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <system_error>

#include "formats/json.h"
#include "formats/text_file.h"

namespace millrace::model {
namespace {

namespace json = boost::json;
using formats::Quoted;

// The released index has 7 MB.
constexpr size_t kMaxIndexBytes = size_t{64} << 20;
constexpr std::string_view kShardSuffix = ".safetensors";

// Shard names are joined to the checkpoint's directory, so they may not lead out of it.
bool IsPlainShardName(std::string_view name) {
  return name.size() > kShardSuffix.size() && name.ends_with(kShardSuffix) &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

Result<uint64_t> TotalSize(const json::object& root) {
  const json::value* metadata = root.if_contains("metadata");
  if (metadata == nullptr || !metadata->is_object())
    return Error(ErrorCode::kCorrupt, "no object \"metadata\"; it must hold \"total_size\"");
  const json::value* size = metadata->get_object().if_contains("total_size");
  if (size == nullptr) return Error(ErrorCode::kCorrupt, "metadata has no \"total_size\"");
  boost::system::error_code error;
  const auto bytes = size->to_number<uint64_t>(error);
  if (error || size->is_double())
    return Error(ErrorCode::kCorrupt, fmt::format("metadata.total_size is {}, expected a number of bytes",
                                                  formats::Quoted(json::serialize(*size))));
  return bytes;
}

}  // namespace

std::string ShardFileName(size_t number, size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", number, count);
}

bool IsShardFileName(std::string_view name) {
  constexpr std::string_view kPattern = "model-#####-of-#####.safetensors";
  return std::equal(name.begin(), name.end(), kPattern.begin(), kPattern.end(), [](char c, char pattern) {
    return pattern == '#' ? c >= '0' && c <= '9' : c == pattern;
  });
}

Result<CheckpointIndex> ParseCheckpointIndex(std::string_view text) {
  MILLRACE_ASSIGN_OR_RETURN(const json::value value, formats::ParseJson(text));
  if (!value.is_object()) return Error(ErrorCode::kCorrupt, "expected a JSON object");
  const json::object& root = value.get_object();

  CheckpointIndex index;
  MILLRACE_ASSIGN_OR_RETURN(index.total_size, TotalSize(root));
  const json::value* map = root.if_contains("weight_map");
  if (map == nullptr || !map->is_object())
    return Error(ErrorCode::kCorrupt, "no object \"weight_map\" from tensor names to shard file names");
  index.weight_map.reserve(map->get_object().size());
  for (const auto& [tensor, shard] : map->get_object()) {
    if (!shard.is_string() || !IsPlainShardName(shard.get_string()))
      return Error(ErrorCode::kCorrupt,
                   fmt::format("weight_map: {} is in {}, expected a file name that ends in {}",
                               Quoted(tensor), Quoted(json::serialize(shard)), kShardSuffix));
    index.weight_map.emplace_back(tensor, shard.get_string());
  }
  return index;
}

Result<CheckpointIndex> ReadCheckpointIndex(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / kIndexFileName;
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return Error(ErrorCode::kNotFound,
                 fmt::format("{}: no such file; a checkpoint directory holds config.json, {} and its shards",
                             path.string(), kIndexFileName));
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, formats::ReadTextFile(path, kMaxIndexBytes));
  auto index = ParseCheckpointIndex(text);
  if (!index.ok()) return index.error().In(path.string());
  return index;
}

std::string WriteCheckpointIndex(const CheckpointIndex& index) {
  std::string out = fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{",
                                index.total_size);
  std::string_view separator = "\n";
  for (const auto& [tensor, shard] : index.weight_map) {
    out += fmt::format("{}    {}: {}", separator, formats::JsonString(tensor), formats::JsonString(shard));
    separator = ",\n";
  }
  out += index.weight_map.empty() ? "}\n}\n" : "\n  }\n}\n";
  return out;
}

}  // namespace millrace::model
