#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace::formats {

// The byte-level alphabet of GPT-2 style vocabularies: every byte has one printable character, so that a
// vocabulary of byte strings can be written as JSON strings (0x20 is "Ġ", 0x0A is "Ċ").

// Bytes that `raw` spells. kCorrupt if a character of `raw` is not in the alphabet; the message names it.
Result<std::string> ByteLevelDecode(std::string_view raw);

// The spelling of arbitrary bytes, as UTF-8; the inverse of ByteLevelDecode.
std::string ByteLevelEncode(std::string_view bytes);

}  // namespace millrace::formats
