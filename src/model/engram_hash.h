#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "formats/hf_config.h"
#include "formats/tokenizer_json.h"

namespace millrace::model {

// Token id -> compressed class, derived from the tokenizer (shared/spec/v41-text.md, section 6).
struct TokenClasses {
  std::vector<int32_t> class_of;  // [vocab_size]
  int64_t n_classes = 0;
};

// Walks ids 0 .. vocab_size-1 of `tokenizer`. The released vocabulary gives exactly 99,092 classes.
// In token_classes.cc (ICU). Ids that the tokenizer leaves out get their own class from the empty text.
Result<TokenClasses> ComputeTokenClasses(const formats::TokenizerData& tokenizer, int64_t vocab_size);

// Marks a position that breaks n-grams (image tokens) and positions before the start, in compressed-id
// arrays.
inline constexpr int32_t kDeadClass = -1;

// The n-gram hash of all engram layers: bucket primes, row offsets, multipliers.
class EngramHash {
 public:
  // Primes and multipliers from the config (PCG64 as in the specification), classes as given. Fails when the
  // number of classes is not engram_compressed_vocab_size or a layer's primes do not sum to
  // engram_num_embeddings.
  static Result<EngramHash> Build(const formats::ModelConfig& config, TokenClasses classes);
  // From a checkpoint directory: tokenizer.json, else engram_map.json (golden checkpoints). Where both exist
  // the tokenizer is used and the map must agree.
  static Result<EngramHash> ForCheckpoint(const formats::ModelConfig& config,
                                          const std::filesystem::path& dir);

  int n_layers() const { return static_cast<int>(layers_.size()); }
  int64_t columns() const { return columns_; }  // (max n-gram - 1) * heads
  int32_t ClassOf(TokenId token) const { return classes_.class_of[static_cast<size_t>(token)]; }

  // Row ids [columns] of engram layer `i` for the position whose class is window[n-1]; window is oldest
  // first, with kDeadClass for dead positions and positions before the start, n = max n-gram size.
  void Rows(int i, std::span<const int32_t> window, std::span<int64_t> rows) const;

  struct Layer {
    std::vector<int64_t> primes;        // [columns], size-major then head
    std::vector<int64_t> offsets;       // [columns]
    std::vector<uint64_t> multipliers;  // [max n-gram size]
  };
  const Layer& layer(int i) const { return layers_[static_cast<size_t>(i)]; }

 private:
  TokenClasses classes_;
  std::vector<Layer> layers_;
  int64_t columns_ = 0;
  int64_t heads_ = 0;
  int32_t pad_class_ = 0;
};

}  // namespace millrace::model
