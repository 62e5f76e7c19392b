#include "api/generation.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace millrace::api {
namespace {

// Characters of valid UTF-8.
int64_t CountCharacters(const std::string& text) {
  return std::ranges::count_if(text, [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; });
}

void MoveTo(std::vector<ScoredToken>& from, std::vector<ScoredToken>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void TextDelta::Append(TextDelta more) {
  reasoning += more.reasoning;
  content += more.content;
  MoveTo(more.reasoning_tokens, reasoning_tokens);
  MoveTo(more.content_tokens, content_tokens);
}

Generation::Generation(const text::Tokenizer& tokenizer, GenerationOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)), decoder_(tokenizer), stops_(options_.stop) {
  if (options_.reasoning)
    splitter_.emplace(tokenizer, options_.reasoning->ids, options_.reasoning->starts_in_reasoning);
}

TextDelta Generation::OnToken(const engine::TokenEvent& event) {
  if (stopped()) return {};
  ++usage_.completion_tokens;
  if (std::ranges::find(options_.stop_token_ids, event.token) != options_.stop_token_ids.end()) return {};

  const bool was_reasoning = splitter_ && splitter_->in_reasoning();
  const size_t begin = pushed_bytes_;
  const int64_t offset = pushed_characters_;
  TextDelta delta = Release(Split(event.token));
  const bool is_reasoning = splitter_ && splitter_->in_reasoning();
  if (was_reasoning && is_reasoning) ++usage_.reasoning_tokens;
  if (event.chosen && !tokenizer_.IsControl(event.token)) {
    ScoredToken scored = Scored(event);
    scored.text_offset = offset;
    if (is_reasoning) {
      delta.reasoning_tokens.push_back(std::move(scored));
    } else {
      held_.push_back({std::move(scored), begin, pushed_bytes_});
    }
  }
  ReleaseTokens(/*at_end=*/stopped(), delta);
  return delta;
}

TextDelta Generation::OnFinish(const engine::FinishEvent& event) {
  usage_.prompt_tokens = event.prompt_tokens;
  usage_.cached_tokens = event.cached_tokens;
  TextDelta delta;
  if (!stopped()) {
    text::ReasoningSplitter::Delta rest;
    if (splitter_) {
      rest = splitter_->Flush();
    } else {
      rest.content = decoder_.Flush();
    }
    delta = Release(std::move(rest));
    std::string held = stops_.Flush();
    released_bytes_ += held.size();
    delta.content += held;
    ReleaseTokens(/*at_end=*/true, delta);
  }
  reason_ = stopped() ? engine::FinishReason::kStop : event.reason;
  return delta;
}

text::ReasoningSplitter::Delta Generation::Split(TokenId token) {
  if (splitter_) return splitter_->Push(token);
  text::ReasoningSplitter::Delta pieces;
  pieces.content = decoder_.Push(token);
  return pieces;
}

TextDelta Generation::Release(text::ReasoningSplitter::Delta pieces) {
  TextDelta delta;
  delta.reasoning = std::move(pieces.reasoning);
  if (pieces.content.empty()) return delta;
  pushed_bytes_ += pieces.content.size();
  pushed_characters_ += CountCharacters(pieces.content);
  delta.content = stops_.Push(pieces.content);
  released_bytes_ += delta.content.size();
  return delta;
}

// A token's entry goes out once all its text is out; at the end also that of a token whose text was cut by a
// stop string in its middle.
void Generation::ReleaseTokens(bool at_end, TextDelta& delta) {
  while (!held_.empty()) {
    const HeldToken& next = held_.front();
    const bool whole = next.end <= released_bytes_ && (next.begin < next.end || !stopped());
    const bool part = at_end && next.begin < released_bytes_;
    if (!whole && !part) break;
    delta.content_tokens.push_back(std::move(held_.front().token));
    held_.pop_front();
  }
  if (at_end) held_.clear();
}

TokenText Generation::Text(const engine::TokenLogprob& scored) const {
  return {std::string(tokenizer_.TokenBytes(scored.token)), scored.logprob};
}

ScoredToken Generation::Scored(const engine::TokenEvent& event) const {
  ScoredToken scored;
  scored.chosen = Text(*event.chosen);
  for (const engine::TokenLogprob& alternative : event.top) scored.top.push_back(Text(alternative));
  return scored;
}

}  // namespace millrace::api
