#include "text/completion_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace millrace::text {
namespace {

std::optional<char> ControlSymbol(const ControlIds& ids, TokenId id) {
  if (id == ids.eos) return kEndSymbol;
  if (id == ids.think_begin) return kThinkBeginSymbol;
  if (id == ids.think_end) return kThinkEndSymbol;
  if (id == ids.dsml) return kDsmlSymbol;
  return std::nullopt;
}

}  // namespace

CompletionParser::CompletionParser(const Tokenizer& tokenizer, const ControlIds& ids, Options options)
    : tokenizer_(&tokenizer),
      ids_(ids),
      parser_(options.starts_in_reasoning, options.continues_text, std::move(options.tools),
              MarkInput::kToken) {}

CompletionParser::CompletionParser(Options options)
    : parser_(options.starts_in_reasoning, options.continues_text, std::move(options.tools),
              MarkInput::kSpelled) {}

ParsedDelta CompletionParser::Push(TokenId id) {
  const bool is_reasoning = in_reasoning() && id != ids_.think_end;
  const size_t begin = position_;
  std::string symbols;
  if (const auto symbol = ControlSymbol(ids_, id)) {
    reader_.PushControl(*symbol, symbols);
  } else if (tokenizer_->IsControl(id)) {
    reader_.Break(symbols);
  } else {
    reader_.PushBytes(tokenizer_->TokenBytes(id), symbols);
  }
  ParsedDelta delta = Parse(symbols);
  CountReasoning(is_reasoning, begin);
  return delta;
}

ParsedDelta CompletionParser::PushText(std::string_view bytes) {
  std::string symbols;
  reader_.PushSpelled(bytes, symbols);
  return Parse(symbols);
}

ParsedDelta CompletionParser::Finish(CompletionEnd end) {
  end_ = end;
  std::string symbols;
  reader_.Finish(symbols);
  position_ += SpelledSize(symbols);
  parser_.Feed(symbols);
  parser_.Finish(end);
  for (const size_t begin : std::exchange(undecided_, {}))
    reasoning_tokens_ += begin < parser_.reasoning_end();
  return parser_.Take();
}

ParsedDelta CompletionParser::Parse(std::string_view symbols) {
  position_ += SpelledSize(symbols);
  parser_.Feed(symbols);
  return parser_.Take();
}

// A token that began at `begin` has been parsed.
void CompletionParser::CountReasoning(bool is_reasoning, size_t begin) {
  if (is_reasoning) undecided_.push_back(begin);
  if (undecided_.empty()) return;
  const size_t end = in_reasoning() ? parser_.decided() : parser_.reasoning_end();
  const auto later = std::ranges::find_if(undecided_, [&](size_t token) { return token >= end; });
  reasoning_tokens_ += later - undecided_.begin();
  undecided_.erase(undecided_.begin(), in_reasoning() ? later : undecided_.end());
}

CompletionParser::Place CompletionParser::place() const {
  switch (parser_.state()) {
    case MessageParser::State::kReasoning:
    case MessageParser::State::kMaybeBlock:
      return Place::kReasoning;
    case MessageParser::State::kAnswer:
    case MessageParser::State::kQuotedInvoke:
    case MessageParser::State::kBareInvoke:
      return parser_.after_calls() ? Place::kAfterCalls : Place::kAnswer;
    case MessageParser::State::kBlock:
      return Place::kBlock;
    case MessageParser::State::kInvoke:
    case MessageParser::State::kParameter:
    case MessageParser::State::kSkippedParameter:
    case MessageParser::State::kJsonBody:
      return Place::kCall;
    case MessageParser::State::kEnded:
      return Place::kEnded;
  }
  return Place::kEnded;
}

CompletionReason CompletionParser::reason() const {
  if (end_ == CompletionEnd::kLength) return CompletionReason::kLength;
  return complete_calls() > 0 ? CompletionReason::kToolCalls : CompletionReason::kStop;
}

}  // namespace millrace::text
