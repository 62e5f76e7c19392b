#pragma once

#include <cstdint>
#include <string_view>

#include "base/ids.h"
#include "formats/tokenizer_json.h"

namespace millrace::model {

// A small byte-level BPE tokenizer with the released splitting rules, made anew each time from sentences
// built into the program: BOS, EOS and padding at 0, 1 and 2, then the 256 bytes, then merges learned from
// the sentences, and the control tokens of the released model at the last ids below `vocab_size`. Ids between
// the merges and the control tokens, if `vocab_size` leaves any, belong to no token. `vocab_size` is at least
// 512.
formats::TokenizerData MakeSyntheticTokenizer(int64_t vocab_size);

// The id of a token that MakeSyntheticTokenizer always includes, such as "<｜deepseek_image｜>".
TokenId ControlTokenId(const formats::TokenizerData& tokenizer, std::string_view content);

}  // namespace millrace::model
