#pragma once

#include <string>
#include <string_view>

#include "base/ids.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace millrace::text {

// Turns token ids into text as they come, never handing out part of a character: tokens may end inside one.
// What all calls return concatenates to Tokenizer::Decode of all ids. One stream, one thread.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}  // which must outlive this

  // The text that `id` completes, valid UTF-8, possibly empty. Bytes that no continuation can make valid
  // become U+FFFD at once. A control token gives nothing and does not disturb a character around it.
  std::string Push(TokenId id);
  // The same for raw bytes, for a control token whose literal text is wanted.
  std::string PushBytes(std::string_view bytes) { return repairer_.Push(bytes); }
  // The end of the stream: U+FFFD if a character was left unfinished. The decoder is then as new.
  std::string Flush() { return repairer_.Flush(); }

 private:
  const Tokenizer& tokenizer_;
  Utf8Repairer repairer_;
};

}  // namespace millrace::text
