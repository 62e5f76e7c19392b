#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "text/tokenizer.h"

namespace millrace::text {

// Ids of the control tokens that the chat encoding of V4.1 is made of, looked up by name (section 1).
struct ControlIds {
  TokenId bos = 0;
  TokenId eos = 0;
  TokenId system = 0;
  TokenId user = 0;
  TokenId assistant = 0;
  TokenId think_begin = 0;
  TokenId think_end = 0;
  TokenId dsml = 0;
  TokenId latest_reminder = 0;

  // kMismatch naming every token that `tokenizer` lacks.
  static Result<ControlIds> Find(const Tokenizer& tokenizer);
};

}  // namespace millrace::text
