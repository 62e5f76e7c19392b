#include "api/generation.h"

#include <algorithm>
#include <utility>

#include "api/random_id.h"

namespace millrace::api {
namespace {

constexpr size_t kCallIdDigits = 24;

// Characters of valid UTF-8.
int64_t CountCharacters(const std::string& text) {
  return std::ranges::count_if(text, [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; });
}

}  // namespace

Generation::Generation(const text::Tokenizer& tokenizer, GenerationOptions options, AnswerEnd::Kind at_limit)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      at_limit_(at_limit),
      decoder_(tokenizer),
      stops_(options_.stop) {
  if (!options_.parse) return;
  text::CompletionParser::Options parse;
  parse.starts_in_reasoning = options_.parse->starts_in_reasoning;
  parse.continues_text = options_.parse->continues_text;
  if (options_.parse->tools) parse.tools = options_.parse->tools->schemas();
  parser_.emplace(tokenizer, options_.parse->ids, std::move(parse));
}

TextDelta Generation::OnToken(const engine::TokenEvent& event) {
  if (stopped()) return {};
  ++usage_.completion_tokens;
  if (std::ranges::find(options_.stop_token_ids, event.token) != options_.stop_token_ids.end()) return {};

  if (!parser_ || event.token != options_.parse->ids.eos) ids_.push_back(event.token);
  const size_t begin = parser_ ? parser_->position() : verbatim_bytes_;
  const int64_t characters = verbatim_characters_;
  text::ParsedDelta parsed = Parse(event.token);
  if (event.chosen && !content_ended_ && !tokenizer_.IsControl(event.token)) {
    HeldToken held{.token = Scored(event), .at = {}};
    held.at = {begin, parser_ ? parser_->position() : verbatim_bytes_};
    held.token.text_offset = characters;
    held_.push_back(std::move(held));
  }
  TextDelta delta = Release(std::move(parsed));
  if (stopped()) ReleaseLastTokens(delta);
  return delta;
}

TextDelta Generation::OnFinish(const engine::FinishEvent& event) {
  using engine::FinishReason;
  usage_.prompt_tokens = event.prompt_tokens;
  usage_.cached_tokens = event.cached_tokens;
  TextDelta delta;
  if (!stopped()) {
    const bool cut = event.reason == FinishReason::kLength || event.reason == FinishReason::kRepetition;
    const text::CompletionEnd end = cut ? text::CompletionEnd::kLength : text::CompletionEnd::kStop;
    delta = Release(parser_ ? parser_->Finish(end) : Verbatim(decoder_.Flush()));
    ReleaseContent(stops_.Flush(), delta);
    ReleaseLastTokens(delta);
  }
  if (parser_) usage_.reasoning_tokens = parser_->reasoning_tokens();
  end_ = EndOf(event.reason);
  return delta;
}

bool Generation::all_told() const {
  const bool calls_told = !parser_ || parser_->call_count() == parser_->complete_calls();
  return calls_told && !left_out_calls_ && !stops_.hit();
}

AnswerEnd Generation::EndOf(engine::FinishReason reason) const {
  using Kind = AnswerEnd::Kind;
  if (stops_.hit()) return {Kind::kStopString, options_.stop[*stops_.hit()]};
  if (has_only_call_) return {Kind::kToolCalls, ""};
  if (reason == engine::FinishReason::kLength) return {at_limit_, ""};
  if (reason == engine::FinishReason::kRepetition) return {Kind::kRepetition, ""};
  const bool calls = parser_ && parser_->complete_calls() > 0 && !options_.parse->discard_calls;
  return {calls ? Kind::kToolCalls : Kind::kStop, ""};
}

text::ParsedDelta Generation::Parse(TokenId token) {
  return parser_ ? parser_->Push(token) : Verbatim(decoder_.Push(token));
}

// Text of an answer that is not parsed.
text::ParsedDelta Generation::Verbatim(std::string text) {
  text::ParsedDelta parsed;
  if (text.empty()) return parsed;
  parsed.content_spans.push_back({verbatim_bytes_, verbatim_bytes_ + text.size()});
  verbatim_bytes_ += text.size();
  verbatim_characters_ += CountCharacters(text);
  parsed.content = std::move(text);
  return parsed;
}

TextDelta Generation::Release(text::ParsedDelta parsed) {
  TextDelta delta;
  delta.reasoning = std::move(parsed.reasoning);
  for (const text::SourceSpan& span : parsed.reasoning_spans) ReleaseTokens(span, /*reasoning=*/true, delta);
  if (!parsed.content.empty()) {
    content_spans_.insert(content_spans_.end(), parsed.content_spans.begin(), parsed.content_spans.end());
    ReleaseContent(stops_.Push(parsed.content), delta);
  }
  if (stopped() || !parser_) return delta;
  // No content comes behind calls, so what may begin a stop string there never becomes one.
  using Place = text::CompletionParser::Place;
  const Place place = parser_->place();
  if (!content_ended_ && (!parsed.calls.empty() || (place != Place::kReasoning && place != Place::kAnswer))) {
    content_ended_ = true;
    ReleaseContent(stops_.Flush(), delta);
    ReleaseLastTokens(delta);
  }
  ReleaseCalls(std::move(parsed.calls), delta);
  return delta;
}

// `text`: the next of the content that the stop matcher was given.
void Generation::ReleaseContent(std::string text, TextDelta& delta) {
  size_t left = text.size();
  while (left > 0) {
    text::SourceSpan& next = content_spans_.front();
    const size_t bytes = std::min(left, next.end - next.begin);
    ReleaseTokens({next.begin, next.begin + bytes}, /*reasoning=*/false, delta);
    left -= bytes;
    next.begin += bytes;
    if (next.begin == next.end) content_spans_.pop_front();
  }
  delta.content += text;
}

void Generation::ReleaseCalls(std::vector<text::CallDelta> calls, TextDelta& delta) {
  if (options_.parse->discard_calls) {
    left_out_calls_ = left_out_calls_ || !calls.empty();
    return;
  }
  for (text::CallDelta& call : calls) {
    CallDelta next;
    next.index = call.index;
    if (!call.name.empty()) {
      next.id = RandomHexId().substr(0, kCallIdDigits);
      next.tool = options_.parse->tools->ClientName(call.name);
      next.written_name = std::move(call.name);
    }
    next.arguments = std::move(call.arguments);
    next.complete = call.complete;
    delta.calls.push_back(std::move(next));
    if (call.complete && options_.parse->one_call) {
      has_only_call_ = true;
      return;
    }
  }
}

// The text of `span` goes out. A token's entry goes out with the last of its text that is not markup.
void Generation::ReleaseTokens(const text::SourceSpan& span, bool reasoning, TextDelta& delta) {
  while (!held_.empty() && held_.front().at.begin < span.end) {
    HeldToken& front = held_.front();
    const bool behind =
        front.at.end < span.begin || (front.at.end == span.begin && front.at.begin < span.begin);
    if (!behind) {
      front.visible = true;
      front.reasoning = reasoning;
      if (front.at.end > span.end) return;
    }
    ReleaseFrontToken(delta);
  }
}

// No more text comes.
void Generation::ReleaseLastTokens(TextDelta& delta) {
  while (!held_.empty()) ReleaseFrontToken(delta);
}

// Markup, and text that a stop string took away, has no entries.
void Generation::ReleaseFrontToken(TextDelta& delta) {
  HeldToken& front = held_.front();
  if (front.visible) {
    std::vector<ScoredToken>& list = front.reasoning ? delta.reasoning_tokens : delta.content_tokens;
    list.push_back(std::move(front.token));
  }
  held_.pop_front();
}

TokenText Generation::Text(const engine::TokenLogprob& scored) const {
  return {tokenizer_.TokenBytes(scored.token), scored.logprob};
}

ScoredToken Generation::Scored(const engine::TokenEvent& event) const {
  ScoredToken scored;
  scored.chosen = Text(*event.chosen);
  scored.top.reserve(event.top.size());
  for (const engine::TokenLogprob& alternative : event.top) scored.top.push_back(Text(alternative));
  return scored;
}

}  // namespace millrace::api
