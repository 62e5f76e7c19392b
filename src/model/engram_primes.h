#pragma once

#include <cstdint>
#include <vector>

#include "formats/hf_config.h"

namespace millrace::model {

// How the rows of one engram layer's table are dealt to its hash columns (shared/spec/v41-text.md, section 6,
// "Bucket sizes"). Columns are size-major: (n-gram size - 2) * heads + head.
struct EngramBuckets {
  std::vector<int64_t> primes;   // [columns] rows of each column, the modulus of its hash
  std::vector<int64_t> offsets;  // [columns] first row of each column
  int64_t rows = 0;              // the sum of the primes; equals the config's engram_num_embeddings
};

// One entry for each of the config's engram layers, in their order. Reads engram_layer_ids,
// engram_vocab_size, engram_max_ngram_size and engram_n_heads; the time grows with the root of
// engram_vocab_size (16,000,000 as released takes under a millisecond).
std::vector<EngramBuckets> ComputeEngramBuckets(const formats::ModelConfig& config);

}  // namespace millrace::model
