#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/call_arguments.h"
#include "text/markup_tag.h"
#include "text/parsed_delta.h"
#include "text/tool_schema.h"

namespace millrace::text {

// The grammar of a completion and what is forgiven in it (chat encoding, section 11), over symbols (see
// completion_symbols.h); CompletionParser makes these of tokens. Looks at each symbol a bounded number of
// times. One stream, one thread.
class MessageParser {
 public:
  // `tools` is nullptr or empty when the request has none: then only the think tokens and the end token
  // have a meaning.
  // `behind_text`: the prompt holds the beginning of this reasoning or answer, so that a `<think>` is text.
  MessageParser(bool starts_in_reasoning, bool behind_text, std::shared_ptr<const ToolSchemas> tools,
                MarkInput mark_input);

  void Feed(std::string_view symbols);
  // The end of the stream; without effect after an end token.
  void Finish(CompletionEnd end);
  // What was decided since the last call.
  ParsedDelta Take();

  enum class State : uint8_t {
    kReasoning,
    kMaybeBlock,        // in the reasoning, behind the opener of a block: it is one if an invoke follows
    kAnswer,            // outside all markup; behind calls its text is discarded
    kQuotedInvoke,      // in the answer, in an invoke that is none of a declared tool: text with its tags
    kBareInvoke,        // in the answer, in an invoke of a declared tool: it is a call if it is closed
    kBlock,             // in a calls block, between invokes
    kInvoke,            // in an invoke, between parameters
    kParameter,         // in a value
    kSkippedParameter,  // in a parameter whose tag cannot be read
    kJsonBody,          // in a JSON object that stands in place of parameters
    kEnded,
  };
  State state() const { return state_; }
  bool after_calls() const { return after_calls_; }

  // Up to this position (see CompletionParser) all is decided.
  size_t decided() const { return element_.empty() ? at_ : element_begin_; }
  // Where the reasoning ended last, once it did.
  size_t reasoning_end() const { return reasoning_end_; }

  size_t call_count() const { return call_count_; }
  size_t complete_calls() const { return complete_calls_; }

 private:
  bool InBlock() const { return state_ >= State::kBlock && state_ != State::kEnded; }
  TagSet Wanted() const;
  size_t HeldNewlines() const;

  void Step(char symbol);
  void OnThink(char symbol);
  void OnNewline();

  // Tags. `held` is the tag with the `newlines` that were held in front of it.
  void OnTag();
  void OnTagInAnswer(const MarkupTag& tag, size_t newlines, std::string_view held);
  void OnBareInvoke(const MarkupTag& tag, size_t newlines, std::string_view held);
  void OnTagInBlock(const MarkupTag& tag, size_t newlines);
  void FailTag();
  void FailTags();
  void DropFragment();

  // Elements of which it is open whether they count.
  void BeginElement(size_t newlines, std::string_view held);
  void AcceptBareInvoke();
  void ReturnBareInvoke();
  void ReturnMaybeBlock();

  void OpenCall(const MarkupTag& tag);
  void CloseCall();
  void OpenParameter(const MarkupTag& tag);
  void EndParameter();
  void AddArguments(std::string_view piece);
  CallDelta& Current();

  // What to do with symbols, which stand at at_: all pass over them.
  void Text(std::string_view symbols);
  void Drop(std::string_view symbols);
  void DropSeparator(std::string_view newlines);
  void FlushNewlines();

  void Emit(std::string_view symbols, std::string& text, std::vector<SourceSpan>& spans) const;
  void InvokeText(std::string_view symbols);

  std::shared_ptr<const ToolSchemas> tools_;
  State state_;
  bool at_start_ = true;          // of the reasoning or answer: nothing yet but think tokens
  bool after_calls_ = false;      // a block or bare call came: text of the answer is discarded
  bool in_quoted_value_ = false;  // in kQuotedInvoke and kBareInvoke: in a parameter

  // Held back: up to two newlines, then what may become a tag, while matching_.
  std::string held_;
  size_t newlines_ = 0;
  bool matching_ = false;
  TagMatcher matcher_;

  // Of kMaybeBlock and kBareInvoke: all of it, from its separating newlines on.
  std::string element_;
  size_t element_begin_ = 0;   // position
  size_t element_opener_ = 0;  // symbols of the newlines and the opening tag

  std::optional<CallArguments> call_;
  std::string body_;            // of kJsonBody
  bool body_possible_ = false;  // in kInvoke: nothing yet but white space
  size_t call_count_ = 0;
  size_t complete_calls_ = 0;

  size_t at_ = 0;  // position of the first symbol of held_, or else of the next symbol
  size_t reasoning_end_ = 0;
  ParsedDelta delta_;
};

}  // namespace millrace::text
