#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace millrace::formats {

struct AddedToken {
  TokenId id = 0;
  std::string content;  // UTF-8
  bool special = false;
};

// The content of a byte-level BPE tokenizer.json (shared/spec/tokenizer.md), validated.
struct TokenizerData {
  // Raw vocabulary strings by id, in the byte-level alphabet ("Ġthe") for base tokens and literally for added
  // ones; an id that the file leaves out is empty. size() is the highest id + 1.
  std::vector<std::string> tokens;
  // In rank order, left and right raw strings.
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<AddedToken> added_tokens;  // ascending by id
};

// Refuses what the released splitting and decoding rules do not cover (other model types, normalisers,
// unknown tokens, other pre-tokenizers), naming the field and the value.
Result<TokenizerData> ParseTokenizerJson(std::string_view json);

// `path` is the file or the directory that holds tokenizer.json.
Result<TokenizerData> ReadTokenizerJson(const std::filesystem::path& path);

// The same layout as the released file.
std::string WriteTokenizerJson(const TokenizerData& data);

// Bytes of a raw base-vocabulary string through the inverse of the byte-level table; error if a character is
// not in the table.
Result<std::string> ByteLevelDecode(std::string_view raw);
// The byte-level spelling of arbitrary bytes.
std::string ByteLevelEncode(std::string_view bytes);

}  // namespace millrace::formats
