#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/completion_symbols.h"
#include "text/control_ids.h"
#include "text/message_parser.h"
#include "text/parsed_delta.h"
#include "text/tokenizer.h"
#include "text/tool_schema.h"

namespace millrace::text {

enum class CompletionReason : uint8_t { kStop, kLength, kToolCalls };

// Parses a completion as it is generated into reasoning, content and tool calls, for V4.1 and V4, forgiving
// what models do wrong (chat encoding, section 11). The result depends on the completion only, never on how
// it is cut into pushes. Time is linear in the input. One stream, one thread.
class CompletionParser {
 public:
  struct Options {
    bool starts_in_reasoning = false;  // as in ChatPrompt
    // The prompt holds the beginning of the message (a prefill), so that a `<think>` at the start of the
    // completion does not open reasoning (section 16, row 7).
    bool continues_text = false;
    // nullptr or empty: no tools in the request, so that markup of calls is ordinary text.
    std::shared_ptr<const ToolSchemas> tools;
  };

  // For Push: control tokens are known by `ids`, and the same letters spelled with ordinary tokens are text.
  // `tokenizer` must outlive the parser.
  CompletionParser(const Tokenizer& tokenizer, const ControlIds& ids, Options options);
  // For PushText.
  explicit CompletionParser(Options options);

  // The next token. Control tokens without a meaning here were sampled by accident and give no text.
  ParsedDelta Push(TokenId id);
  // The next bytes of a completion whose control tokens are spelled out, as in logs and golden files.
  ParsedDelta PushText(std::string_view bytes);
  // The end: decides what was held back. Call once; nothing may be pushed after it.
  ParsedDelta Finish(CompletionEnd end);

  // Bytes of the completion so far, control tokens by their literal text, ill-formed UTF-8 as U+FFFD (three
  // bytes, counted when it is known); accidental control tokens count nothing. A token stands from the
  // position before its Push to the one after.
  size_t position() const { return position_; }

  // Where the next token belongs, as far as is known.
  enum class Place : uint8_t {
    kReasoning,
    kAnswer,
    kBlock,       // in a calls block, between calls
    kCall,        // in a call
    kAfterCalls,  // behind a block or bare call: text is discarded, further calls are not
    kEnded,       // the end token was seen: all further input is ignored
  };
  Place place() const;
  bool in_reasoning() const { return place() == Place::kReasoning; }

  // Tokens of the reasoning so far, without `</think>` and without markup; those in what is held back are
  // counted once that is decided.
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

  // Calls announced, and those of them that are complete.
  size_t call_count() const { return parser_.call_count(); }
  size_t complete_calls() const { return parser_.complete_calls(); }
  // After Finish: kToolCalls if a call is complete and the length limit did not strike.
  CompletionReason reason() const;

 private:
  ParsedDelta Parse(std::string_view symbols);
  void CountReasoning(bool is_reasoning, size_t begin);

  const Tokenizer* tokenizer_ = nullptr;  // for Push
  ControlIds ids_;
  SymbolReader reader_;
  MessageParser parser_;
  size_t position_ = 0;
  // Where the tokens begin that belong to the reasoning unless what they hold turns out to be markup.
  std::vector<size_t> undecided_;
  int64_t reasoning_tokens_ = 0;
  CompletionEnd end_ = CompletionEnd::kStop;
};

}  // namespace millrace::text
