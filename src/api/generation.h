#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"
#include "text/control_ids.h"
#include "text/reasoning_splitter.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace millrace::api {

// A token's text and probability, as clients are shown it.
struct TokenText {
  std::string bytes;  // may begin or end inside a character
  float logprob = 0;
};

struct ScoredToken {
  TokenText chosen;
  std::vector<TokenText> top;  // best first
  int64_t text_offset = 0;     // characters of the answer in front of it
};

// What some tokens added to an answer. Text that may yet become part of a stop string or of a character is
// held back and comes with a later delta.
struct TextDelta {
  std::string reasoning;
  std::string content;
  std::vector<ScoredToken> reasoning_tokens;  // with SamplingParams::logprobs, of the text above
  std::vector<ScoredToken> content_tokens;

  bool empty() const {
    return reasoning.empty() && content.empty() && reasoning_tokens.empty() && content_tokens.empty();
  }
  void Append(TextDelta more);
};

struct TokenUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;  // reasoning included
  int64_t reasoning_tokens = 0;   // without the token that closes it
};

// How the reasoning of a completion is told from its answer.
struct ReasoningOptions {
  text::ControlIds ids;
  bool starts_in_reasoning = false;  // the prompt ends with an open reasoning block
};

struct GenerationOptions {
  std::optional<ReasoningOptions> reasoning;  // nullopt: all is answer
  std::vector<std::string> stop;              // of the answer's text, not of its reasoning; never returned
  std::vector<TokenId> stop_token_ids;        // end the sequence; their text is not returned
};

// Turns the tokens of one sequence into the text that its reader sees: knows characters, reasoning and stop
// strings; knows nothing of HTTP. One thread. The tokenizer outlives it.
class Generation {
 public:
  Generation(const text::Tokenizer& tokenizer, GenerationOptions options);

  // Once a stop string has been met (`stopped`), the caller cancels the sequence; tokens that still come are
  // ignored.
  TextDelta OnToken(const engine::TokenEvent& event);
  bool stopped() const { return stops_.hit().has_value(); }

  // Releases what was held back; call once, after the last token.
  TextDelta OnFinish(const engine::FinishEvent& event);

  // After OnFinish. kStop also when a stop string ended it.
  engine::FinishReason reason() const { return reason_; }
  const TokenUsage& usage() const { return usage_; }

 private:
  // Content tokens whose text the stop matcher may still take back.
  struct HeldToken {
    ScoredToken token;
    size_t begin = 0;  // bytes of pushed content
    size_t end = 0;
  };

  text::ReasoningSplitter::Delta Split(TokenId token);
  TextDelta Release(text::ReasoningSplitter::Delta pieces);
  void ReleaseTokens(bool at_end, TextDelta& delta);
  TokenText Text(const engine::TokenLogprob& scored) const;
  ScoredToken Scored(const engine::TokenEvent& event) const;

  const text::Tokenizer& tokenizer_;
  const GenerationOptions options_;
  std::optional<text::ReasoningSplitter> splitter_;
  text::StreamDecoder decoder_;  // without a splitter
  text::StopMatcher stops_;
  TokenUsage usage_;
  engine::FinishReason reason_ = engine::FinishReason::kStop;

  std::deque<HeldToken> held_;
  size_t pushed_bytes_ = 0;    // content given to the stop matcher
  size_t released_bytes_ = 0;  // and handed out by it
  int64_t pushed_characters_ = 0;
};

}  // namespace millrace::api
