#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.h"

namespace millrace::model {

// The content of an engram_map.json: the derived inputs of the n-gram hash written out. Not part of a
// release; golden checkpoints carry one instead of a tokenizer.
struct EngramMap {
  int64_t compressed_vocab_size = 0;
  std::vector<int32_t> token_map;                  // [vocab_size]
  std::vector<std::vector<int64_t>> primes;        // [layer][column]
  std::vector<std::vector<int64_t>> offsets;       // [layer][column]
  std::vector<std::vector<uint64_t>> multipliers;  // [layer][look-back]
};

Result<EngramMap> ReadEngramMap(const std::filesystem::path& file);

}  // namespace millrace::model
