#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "formats/byte_level.h"

namespace millrace::formats {

// Bounds that keep a hostile file from exhausting memory; the released vocabulary has 129,280 ids, 127,741
// merges and at most 256 bytes a token.
inline constexpr int64_t kMaxVocabSize = int64_t{1} << 20;
inline constexpr int64_t kMaxRawTokenBytes = 4096;
inline constexpr int64_t kMaxTokenizerFileBytes = int64_t{256} << 20;

struct AddedToken {
  TokenId id = 0;
  std::string content;  // UTF-8
  bool special = false;

  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

// The content of a byte-level BPE tokenizer.json (docs: tokenizer.md of the specification), validated.
struct TokenizerData {
  // Raw vocabulary strings by id, in the byte-level alphabet ("Ġthe") for base tokens and literally for added
  // ones; an id that the file leaves out is empty. size() is the highest id + 1.
  std::vector<std::string> tokens;
  // In rank order, left and right raw strings.
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<AddedToken> added_tokens;  // ascending by id

  friend bool operator==(const TokenizerData&, const TokenizerData&) = default;
};

// Reads and checks everything an encoder relies on: ids and tokens are unique and bounded, base tokens are
// spelled in the byte-level alphabet and cover all 256 bytes, every merge joins two base tokens into a third
// and no pair stands twice, added tokens agree with the vocabulary. Merges may be "a b" or ["a", "b"].
// Refuses what the released splitting and decoding rules do not cover (other model types, normalisers,
// unknown tokens, other pre-tokenizers). Errors (kCorrupt, kMismatch) name the field, the value and what was
// expected.
Result<TokenizerData> ParseTokenizerJson(std::string_view json);

// `path` is the file or the directory that holds tokenizer.json. Also kNotFound and kIo.
Result<TokenizerData> ReadTokenizerJson(const std::filesystem::path& path);

// The same layout as the released file; parsing it gives `data` back. Added tokens whose id lies among the
// base ids stand in both lists, as in the released file.
std::string WriteTokenizerJson(const TokenizerData& data);

}  // namespace millrace::formats
