#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/request_tools.h"
#include "base/ids.h"
#include "engine/request.h"
#include "text/completion_parser.h"
#include "text/control_ids.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace millrace::api {

// A token's text and probability, as clients are shown it.
struct TokenText {
  std::string_view bytes;  // the tokenizer's; may begin or end inside a character
  float logprob = 0;
};

struct ScoredToken {
  TokenText chosen;
  std::vector<TokenText> top;  // best first
  int64_t text_offset = 0;     // characters of the answer in front of it
};

// What some tokens added to one call of a tool.
struct CallDelta {
  size_t index = 0;  // of the call in its answer
  // These in the call's first delta only.
  std::string id;            // 24 hexadecimal digits, in front of which a dialect puts its prefix
  text::ToolName tool;       // as the client declared it
  std::string written_name;  // as the model wrote it
  // The next piece of JSON text; the pieces make an object once the call is complete.
  std::string arguments;
  bool complete = false;  // nothing more comes of this call; one that never completes was cut off

  bool first() const { return !id.empty(); }
};

// What some tokens added to an answer. Text that may yet become part of a stop string, of markup or of a
// character is held back and comes with a later delta.
struct TextDelta {
  std::string reasoning;
  std::string content;
  std::vector<ScoredToken> reasoning_tokens;  // with SamplingParams::logprobs, of the text above
  std::vector<ScoredToken> content_tokens;
  std::vector<CallDelta> calls;  // behind the text above

  bool empty() const {
    return reasoning.empty() && content.empty() && reasoning_tokens.empty() && content_tokens.empty() &&
           calls.empty();
  }
};

struct TokenUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;  // reasoning included
  int64_t reasoning_tokens = 0;   // without the token that closes it
};

// Why an answer ended.
struct AnswerEnd {
  enum class Kind : uint8_t {
    kStop,         // the model was done, or one of the request's stop tokens came
    kStopString,   // `stop_string` came
    kLength,       // the request's limit
    kOutputCap,    // the server's limit for requests that name none
    kContextFull,  // the rest of the context
    kToolCalls,    // at least one complete call
    kRepetition,   // the model only repeated itself
  };
  Kind kind = Kind::kStop;
  std::string stop_string;
};

// How the parts of a chat's answer are told apart.
struct ParseOptions {
  text::ControlIds ids;
  bool starts_in_reasoning = false;           // the prompt ends with an open reasoning block
  bool continues_text = false;                // the prompt holds the beginning of the answer
  std::shared_ptr<const RequestTools> tools;  // nullptr: none, so that markup of calls is text
  bool discard_calls = false;                 // calls and their markup are left out
  bool one_call = false;                      // the answer ends after its first complete call
};

struct GenerationOptions {
  std::optional<ParseOptions> parse;    // nullopt: all is answer
  std::vector<std::string> stop;        // of the answer's text only; never returned
  std::vector<TokenId> stop_token_ids;  // end the sequence; their text is not returned
};

// Turns the tokens of one sequence into the text that its reader sees: knows characters, reasoning, calls and
// stop strings; knows nothing of HTTP. One thread. The tokenizer outlives it.
class Generation {
 public:
  // `at_limit`: what the end is called when the engine ends the sequence by its length.
  Generation(const text::Tokenizer& tokenizer, GenerationOptions options,
             AnswerEnd::Kind at_limit = AnswerEnd::Kind::kLength);

  // Once the answer is complete before the sequence is (`stopped`: a stop string, the only call), the caller
  // cancels the sequence; tokens that still come are ignored.
  TextDelta OnToken(const engine::TokenEvent& event);
  bool stopped() const { return stops_.hit().has_value() || has_only_call_; }

  // Releases what was held back; call once, after the last token.
  TextDelta OnFinish(const engine::FinishEvent& event);

  // After OnFinish, unless the sequence was cancelled by others or failed.
  const AnswerEnd& end() const { return end_; }
  const TokenUsage& usage() const { return usage_; }

  // What was generated, without the token that ended it.
  const std::vector<TokenId>& ids() const { return ids_; }
  // Frees the ids, which nobody asks for any more.
  void DropIds() { ids_ = {}; }
  // After OnFinish: the deltas told all that the tokens say.
  bool all_told() const;
  // It ended behind the only call that was asked for, with the calls block left open.
  bool ended_at_only_call() const { return has_only_call_; }

 private:
  // A token whose text has not gone out, or not all of it.
  struct HeldToken {
    ScoredToken token;
    text::SourceSpan at;   // of the completion
    bool visible = false;  // some of its text is out
    bool reasoning = false;
  };

  text::ParsedDelta Parse(TokenId token);
  text::ParsedDelta Verbatim(std::string text);
  TextDelta Release(text::ParsedDelta parsed);
  void ReleaseContent(std::string text, TextDelta& delta);
  void ReleaseCalls(std::vector<text::CallDelta> calls, TextDelta& delta);
  void ReleaseTokens(const text::SourceSpan& span, bool reasoning, TextDelta& delta);
  void ReleaseLastTokens(TextDelta& delta);
  void ReleaseFrontToken(TextDelta& delta);
  AnswerEnd EndOf(engine::FinishReason reason) const;
  TokenText Text(const engine::TokenLogprob& scored) const;
  ScoredToken Scored(const engine::TokenEvent& event) const;

  const text::Tokenizer& tokenizer_;
  const GenerationOptions options_;
  const AnswerEnd::Kind at_limit_;
  std::optional<text::CompletionParser> parser_;
  text::StreamDecoder decoder_;  // without a parser
  size_t verbatim_bytes_ = 0;    // and what it gave so far
  int64_t verbatim_characters_ = 0;
  text::StopMatcher stops_;
  bool content_ended_ = false;  // calls have begun
  bool has_only_call_ = false;
  bool left_out_calls_ = false;
  TokenUsage usage_;
  AnswerEnd end_;
  std::vector<TokenId> ids_;

  std::deque<text::SourceSpan> content_spans_;  // of the content that stops_ holds
  std::deque<HeldToken> held_;                  // with logprobs; in order
};

}  // namespace millrace::api
