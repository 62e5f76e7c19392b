#pragma once

#include <string>

#include "base/ids.h"
#include "text/control_ids.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace millrace::text {

// Parts a generated token stream into reasoning and answer at the think tokens, which are known by id: the
// same letters spelled with ordinary tokens are text. Without tools declared this is the whole parser of a
// completion (chat encoding, section 11, rows 3 to 7 and 33). Text is kept exactly. One stream, one thread.
class ReasoningSplitter {
 public:
  // What a token added to either side; valid UTF-8.
  struct Delta {
    std::string reasoning;
    std::string content;
  };

  // `tokenizer` must outlive the splitter; `starts_in_reasoning` as in ChatPrompt.
  ReasoningSplitter(const Tokenizer& tokenizer, const ControlIds& ids, bool starts_in_reasoning)
      : tokenizer_(tokenizer), ids_(ids), decoder_(tokenizer), in_reasoning_(starts_in_reasoning) {}

  // Control tokens that were sampled by accident, and the end token, give no text.
  Delta Push(TokenId id);
  // The end of the stream: a character left unfinished becomes U+FFFD.
  Delta Flush() { return Side(decoder_.Flush()); }

  // Where the next token belongs, for counting reasoning tokens.
  bool in_reasoning() const { return in_reasoning_; }

 private:
  Delta Side(std::string text) const;
  Delta SwitchTo(bool reasoning);

  const Tokenizer& tokenizer_;
  ControlIds ids_;
  StreamDecoder decoder_;  // of the current side
  bool in_reasoning_;
  bool at_start_ = true;  // no text yet on the current side
};

}  // namespace millrace::text
