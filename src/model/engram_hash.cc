#include "model/engram_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "model/engram_map.h"
#include "model/engram_primes.h"
#include "model/pcg64.h"

namespace millrace::model {
namespace {

// Odd numbers below (2^63 - 1) / classes, so that class * multiplier stays below 2^63.
std::vector<uint64_t> DrawMultipliers(int64_t layer, int64_t n, int64_t n_classes) {
  constexpr uint64_t kLayerSeed = 10007;
  const uint64_t bound = static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / n_classes) / 2;
  Pcg64 rng(kLayerSeed * static_cast<uint64_t>(layer));
  std::vector<uint64_t> multipliers;
  for (int64_t i = 0; i < n; ++i) multipliers.push_back(2 * rng.Below(bound) + 1);
  return multipliers;
}

Status CheckAgainstMap(const EngramHash& hash, const EngramMap& map, const std::string& file) {
  const auto differs = [&](const std::string& what) {
    return Error(ErrorCode::kMismatch,
                 fmt::format("{}: {} differs from what the config and tokenizer give", file, what));
  };
  if (map.compressed_vocab_size != hash.classes().n_classes) return differs("compressed_vocab_size");
  if (map.token_map != hash.classes().class_of) return differs("token_map");
  if (map.primes.size() != static_cast<size_t>(hash.n_layers()) || map.offsets.size() != map.primes.size() ||
      map.multipliers.size() != map.primes.size()) {
    return differs("the number of layers");
  }
  for (int i = 0; i < hash.n_layers(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (map.primes[at] != hash.layer(i).primes) return differs(fmt::format("primes[{}]", i));
    if (map.offsets[at] != hash.layer(i).offsets) return differs(fmt::format("offsets[{}]", i));
    if (map.multipliers[at] != hash.layer(i).multipliers) return differs(fmt::format("multipliers[{}]", i));
  }
  return {};
}

TokenClasses ClassesOf(const EngramMap& map) {
  return {.class_of = map.token_map, .n_classes = map.compressed_vocab_size};
}

}  // namespace

Result<EngramHash> EngramHash::Build(const formats::ModelConfig& config, TokenClasses classes) {
  EngramHash hash;
  if (config.engram_layer_ids.empty()) return hash;
  if (classes.n_classes != config.engram_compressed_vocab_size) {
    return Error(
        ErrorCode::kMismatch,
        fmt::format(
            "the tokenizer gives {} compressed classes, config.json's engram_compressed_vocab_size is {}: "
            "tokenizer.json does not belong to this checkpoint",
            classes.n_classes, config.engram_compressed_vocab_size));
  }
  if (static_cast<int64_t>(classes.class_of.size()) != config.vocab_size) {
    return Error(ErrorCode::kMismatch, fmt::format("classes are given for {} tokens, the vocabulary has {}",
                                                   classes.class_of.size(), config.vocab_size));
  }
  for (int32_t c : classes.class_of) {
    if (c < 0 || c >= classes.n_classes) {
      return Error(ErrorCode::kMismatch,
                   fmt::format("class {} is outside 0 .. {}", c, classes.n_classes - 1));
    }
  }
  if (config.engram_pad_token_id < 0 || config.engram_pad_token_id >= config.vocab_size) {
    return Error(ErrorCode::kMismatch,
                 fmt::format("engram_pad_token_id {} is outside the vocabulary", config.engram_pad_token_id));
  }
  hash.heads_ = config.engram_n_heads;
  hash.max_ngram_ = config.engram_max_ngram_size;
  hash.columns_ = (hash.max_ngram_ - 1) * hash.heads_;
  hash.pad_class_ = classes.class_of[static_cast<size_t>(config.engram_pad_token_id)];
  // Every prime is at least engram_vocab_size: sizes that cannot add up are refused before primes are
  // searched.
  for (size_t i = 0; i < config.engram_num_embeddings.size(); ++i) {
    if (config.engram_num_embeddings[i] / hash.columns_ < config.engram_vocab_size - 1) {
      return Error(
          ErrorCode::kMismatch,
          fmt::format("engram_num_embeddings[{}] is {}, too small for {} columns of engram_vocab_size {}", i,
                      config.engram_num_embeddings[i], hash.columns_, config.engram_vocab_size));
    }
  }
  std::vector<EngramBuckets> buckets = ComputeEngramBuckets(config);
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i].rows != config.engram_num_embeddings[i]) {
      return Error(
          ErrorCode::kMismatch,
          fmt::format(
              "the bucket primes of engram layer {} sum to {}, config.json's engram_num_embeddings says {}",
              config.engram_layer_ids[i], buckets[i].rows, config.engram_num_embeddings[i]));
    }
    hash.layers_.push_back(
        {.primes = std::move(buckets[i].primes),
         .offsets = std::move(buckets[i].offsets),
         .multipliers = DrawMultipliers(config.engram_layer_ids[i], hash.max_ngram_, classes.n_classes)});
  }
  hash.classes_ = std::move(classes);
  return hash;
}

uint64_t EngramHash::BytesFor(const formats::ModelConfig& config) {
  const auto columns = static_cast<uint64_t>((config.engram_max_ngram_size - 1) * config.engram_n_heads);
  const uint64_t layer = sizeof(Layer) + columns * 2 * sizeof(int64_t) +
                         static_cast<uint64_t>(config.engram_max_ngram_size) * sizeof(uint64_t);
  return static_cast<uint64_t>(config.vocab_size) * sizeof(int32_t) + config.engram_layer_ids.size() * layer;
}

Result<EngramHash> EngramHash::ForCheckpoint(const formats::ModelConfig& config,
                                             const std::filesystem::path& dir) {
  if (config.engram_layer_ids.empty()) return EngramHash();
  const std::filesystem::path map_file = dir / "engram_map.json";
  const bool has_map = std::filesystem::exists(map_file);
  EngramMap map;
  if (has_map) {
    MILLRACE_ASSIGN_OR_RETURN(map, ReadEngramMap(map_file));
  }
  TokenClasses classes;
  if (std::filesystem::exists(dir / "tokenizer.json")) {
    MILLRACE_ASSIGN_OR_RETURN(const formats::TokenizerData tokenizer, formats::ReadTokenizerJson(dir));
    MILLRACE_ASSIGN_OR_RETURN(classes, ComputeTokenClasses(tokenizer, config.vocab_size));
  } else if (has_map) {
    classes = ClassesOf(map);
  } else {
    return Error(
        ErrorCode::kNotFound,
        fmt::format("{} has no tokenizer.json, from which the n-gram classes are derived", dir.string()));
  }
  MILLRACE_ASSIGN_OR_RETURN(EngramHash hash, Build(config, std::move(classes)));
  if (has_map) MILLRACE_RETURN_IF_ERROR(CheckAgainstMap(hash, map, map_file.string()));
  return hash;
}

void EngramHash::Rows(int i, std::span<const int32_t> window, std::span<int64_t> rows) const {
  const Layer& layer = layers_[static_cast<size_t>(i)];
  const size_t n = static_cast<size_t>(max_ngram_);
  MILLRACE_CHECK(window.size() == n && rows.size() == layer.primes.size(),
                 "engram window or row buffer of another size");
  bool dead = false;
  uint64_t x = 0;
  for (size_t back = 0; back < n; ++back) {
    const int32_t c = window[n - 1 - back];
    dead = dead || c == kDeadClass;
    const auto k = static_cast<uint64_t>(dead ? pad_class_ : c);
    x ^= k * layer.multipliers[back];
    if (back == 0) continue;
    const size_t first = (back - 1) * static_cast<size_t>(heads_);
    for (size_t column = first; column < first + static_cast<size_t>(heads_); ++column) {
      rows[column] =
          layer.offsets[column] + static_cast<int64_t>(x % static_cast<uint64_t>(layer.primes[column]));
    }
  }
}

}  // namespace millrace::model
