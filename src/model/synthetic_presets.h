#pragma once

#include <cstdint>
#include <string_view>

#include "formats/hf_config.h"

namespace millrace::model {

enum class SyntheticPreset : uint8_t {
  kTiny,       // a few MB, every mechanism and every component, for tests
  kBench,      // about 1.5 GB, real matrix shapes, for benchmarks
  kLong,       // a few MB, positions to 2^21, for runs of a million tokens
  kRealLayer,  // about 3.4 GB, two layers with every real dimension, for tests that toy sizes would pass
};

inline constexpr SyntheticPreset kSyntheticPresets[] = {SyntheticPreset::kTiny, SyntheticPreset::kBench,
                                                        SyntheticPreset::kLong, SyntheticPreset::kRealLayer};

// "tiny", "bench", "long", "real-layer".
std::string_view PresetName(SyntheticPreset preset);

// The preset's config, but for what follows from the tokenizer: image_token_id, dspark_noise_token_id,
// engram_compressed_vocab_size; and engram_num_embeddings, which follow from the primes.
formats::ModelConfig PresetConfig(SyntheticPreset preset);

}  // namespace millrace::model
