#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/control_ids.h"
#include "text/tokenizer.h"
#include "text/tool_schema.h"

namespace millrace::text {

// Where a piece of emitted text stood in the completion: a half-open range of positions (see
// CompletionParser::position), as long as the piece.
struct SourceSpan {
  size_t begin = 0;
  size_t end = 0;
};

// What the parser learned of one call. The arguments of a call's deltas concatenate to the text of a JSON
// object once it is complete (a parameter that the model gave twice is a key twice there: the last counts).
// A call that never completes just stops.
struct CallDelta {
  size_t index = 0;       // of the call among those of the completion
  std::string name;       // as the model wrote it ("ns::name"); only in the call's first delta, never empty there
  std::string arguments;  // the next piece of JSON text
  bool complete = false;  // nothing more comes of this call
};

// What some input added to the parse: valid UTF-8, and final. Text goes out as soon as it can no longer be
// part of a marker or of an unfinished character.
struct ParsedDelta {
  std::string reasoning;
  std::string content;
  // Where the texts above come from, ascending; the lengths add up to those of the texts.
  std::vector<SourceSpan> reasoning_spans;
  std::vector<SourceSpan> content_spans;
  std::vector<CallDelta> calls;  // ascending; after `content`, which never grows once a call was announced

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

// How a generation ended.
enum class CompletionEnd : uint8_t {
  kStop,    // by the end token, or by what the request asked to stop at
  kLength,  // cut off by a limit
};

enum class CompletionReason : uint8_t { kStop, kLength, kToolCalls };

// Parses a completion as it is generated into reasoning, content and tool calls, for V4.1 and V4, forgiving
// what models do wrong (chat encoding, section 11). The result depends on the completion only, never on how
// it is cut into pushes. Time is linear in the input. One stream, one thread.
class CompletionParser {
 public:
  struct Options {
    bool starts_in_reasoning = false;  // as in ChatPrompt
    // nullptr or empty: no tools in the request, so that markup of calls is ordinary text.
    std::shared_ptr<const ToolSchemas> tools;
  };

  // For Push: control tokens are known by `ids`, and the same letters spelled with ordinary tokens are text.
  // `tokenizer` must outlive the parser.
  CompletionParser(const Tokenizer& tokenizer, const ControlIds& ids, Options options);
  // For PushText.
  explicit CompletionParser(Options options);
  CompletionParser(CompletionParser&&) noexcept;
  CompletionParser& operator=(CompletionParser&&) noexcept;
  ~CompletionParser();

  // The next token. Control tokens without a meaning here were sampled by accident and give no text.
  ParsedDelta Push(TokenId id);
  // The next bytes of a completion whose control tokens are spelled out, as in logs and golden files.
  ParsedDelta PushText(std::string_view bytes);
  // The end: decides what was held back. Call once; nothing may be pushed after it.
  ParsedDelta Finish(CompletionEnd end);

  // Bytes of the completion so far, control tokens by their literal text, ill-formed UTF-8 as U+FFFD (three
  // bytes, counted when it is known); accidental control tokens count nothing. A token stands from the
  // position before its Push to the one after.
  size_t position() const;

  // Where the next token belongs, as far as is known.
  enum class Place : uint8_t {
    kReasoning,
    kAnswer,
    kBlock,       // in a calls block, no call being open
    kCall,        // in a call, announced or dropped
    kAfterCalls,  // behind a block or bare call: text is discarded, further calls are not
    kEnded,       // the end token was seen: all further input is ignored
  };
  Place place() const;
  bool in_reasoning() const { return place() == Place::kReasoning; }

  // Tokens of the reasoning so far, without `</think>` and without markup; those in what is held back are
  // counted once that is decided.
  int64_t reasoning_tokens() const;

  // Calls announced, and those of them that are complete.
  size_t call_count() const;
  size_t complete_calls() const;
  // After Finish: kToolCalls if a call is complete and the length limit did not strike.
  CompletionReason reason() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::text
