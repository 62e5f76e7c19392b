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
// In token_classes.cc (ICU). Ids that the tokenizer leaves out share the class of the empty text.
Result<TokenClasses> ComputeTokenClasses(const formats::TokenizerData& tokenizer, int64_t vocab_size);

// The class of positions that have none: image tokens, which break n-grams, and positions before the start.
inline constexpr int32_t kDeadClass = -1;

// The n-gram hash of all engram layers (shared/spec/v41-text.md, section 6). Read-only after Build; any
// thread.
class EngramHash {
 public:
  // How one engram layer hashes. Columns are size-major: (n-gram size - 2) * heads + head.
  struct Layer {
    std::vector<int64_t> primes;        // [columns]
    std::vector<int64_t> offsets;       // [columns]
    std::vector<uint64_t> multipliers;  // [max n-gram size], by look-back
  };

  // Primes and multipliers from the config, classes as given. kMismatch when the number of classes is not
  // engram_compressed_vocab_size or a layer's primes do not sum to engram_num_embeddings.
  static Result<EngramHash> Build(const formats::ModelConfig& config, TokenClasses classes);

  // From a checkpoint directory: classes from tokenizer.json, or from engram_map.json where there is no
  // tokenizer (golden checkpoints). Where an engram_map.json exists, everything in it must agree with what
  // was computed.
  static Result<EngramHash> ForCheckpoint(const formats::ModelConfig& config,
                                          const std::filesystem::path& dir);

  // Bytes that the object holds.
  static uint64_t BytesFor(const formats::ModelConfig& config);

  int n_layers() const { return static_cast<int>(layers_.size()); }
  int64_t columns() const { return columns_; }
  int64_t max_ngram() const { return max_ngram_; }
  const Layer& layer(int i) const { return layers_[static_cast<size_t>(i)]; }
  int32_t pad_class() const { return pad_class_; }
  const TokenClasses& classes() const { return classes_; }

  // `token` is inside the vocabulary.
  int32_t ClassOf(TokenId token) const { return classes_.class_of[static_cast<size_t>(token)]; }

  // Row ids [columns] in engram layer i's table for one position. `window` [max_ngram] holds the classes of
  // the position and those before it, oldest first, the position's own last.
  void Rows(int i, std::span<const int32_t> window, std::span<int64_t> rows) const;

 private:
  TokenClasses classes_;
  std::vector<Layer> layers_;
  int64_t columns_ = 0;
  int64_t heads_ = 0;
  int64_t max_ngram_ = 0;
  int32_t pad_class_ = 0;
};

}  // namespace millrace::model
