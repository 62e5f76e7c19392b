#include "model/engram_primes.h"

#include <algorithm>

namespace millrace::model {
namespace {

bool IsPrime(int64_t n) {
  if (n < 4) return n >= 2;
  if (n % 2 == 0 || n % 3 == 0) return false;
  for (int64_t d = 5; d <= n / d; d += 6)
    if (n % d == 0 || n % (d + 2) == 0) return false;
  return true;
}

}  // namespace

std::vector<EngramBuckets> ComputeEngramBuckets(const formats::ModelConfig& config) {
  const int64_t columns = (config.engram_max_ngram_size - 1) * config.engram_n_heads;
  std::vector<EngramBuckets> layers(config.engram_layer_ids.size());
  // Each layer and n-gram size starts its walk afresh at vocab_size - 1 and passes over the primes already in
  // use, which are all those below the last one taken: together the walks take consecutive primes.
  int64_t last = config.engram_vocab_size - 1;
  for (EngramBuckets& buckets : layers) {
    for (int64_t column = 0; column < columns; ++column) {
      do ++last;
      while (!IsPrime(last));
      buckets.primes.push_back(last);
      buckets.offsets.push_back(buckets.rows);
      buckets.rows += last;
    }
  }
  return layers;
}

}  // namespace millrace::model
