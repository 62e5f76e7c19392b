#pragma once

#include <boost/json/fwd.hpp>

#include "base/result.h"

namespace millrace::formats {

// The parts of a tokenizer.json that are the same for every tokenizer of the family: splitting rules,
// decoder, switches. One table serves the writer, which fills its empty added_tokens, model.vocab and
// model.merges, and the reader, which refuses a file that differs.
boost::json::object ReleasedTokenizerLayout();

// kMismatch naming the first field of `file` that asks for something else than the released layout does.
// Fields that change offsets only, not ids, are free; so are fields unknown here that are null or false.
Status CheckTokenizerLayout(const boost::json::object& file);

}  // namespace millrace::formats
