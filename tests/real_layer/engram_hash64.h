#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/hf_config.h"

namespace millrace::real_layer {

// The n-gram hash (shared/spec/v41-text.md, section 6), from the config and the token classes.
class EngramHash64 {
 public:
  // `class_of` [vocab_size].
  EngramHash64(const formats::ModelConfig& config, std::vector<int32_t> class_of);

  // Row ids [columns] of engram layer number `layer` for the last of `ids`.
  std::vector<int64_t> Rows(size_t layer, std::span<const TokenId> ids) const;

 private:
  struct Layer {
    std::vector<uint64_t> primes;       // [columns]
    std::vector<uint64_t> multipliers;  // [max n-gram size]
  };

  std::vector<int32_t> class_of_;
  size_t max_ngram_;
  size_t heads_;
  uint64_t pad_class_;
  std::vector<Layer> layers_;
};

}  // namespace millrace::real_layer
