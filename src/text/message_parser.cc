#include "text/message_parser.h"

#include <algorithm>
#include <utility>

#include "text/completion_symbols.h"

namespace millrace::text {
namespace {

using State = MessageParser::State;

constexpr TagSet kClosers =
    TagSet().Closer(TagKind::kCalls).Closer(TagKind::kInvoke).Closer(TagKind::kParameter);

bool IsJsonSpace(char symbol) {
  return symbol == ' ' || symbol == '\n' || symbol == '\t' || symbol == '\r';
}

bool IsSpecial(char symbol) {
  return symbol == '<' || symbol == '\n' || IsControlSymbol(symbol);
}

}  // namespace

MessageParser::MessageParser(bool starts_in_reasoning, bool behind_text,
                             std::shared_ptr<const ToolSchemas> tools, MarkInput mark_input)
    : tools_(std::move(tools)),
      state_(starts_in_reasoning ? State::kReasoning : State::kAnswer),
      at_start_(!behind_text),
      matcher_(mark_input) {
  if (tools_ != nullptr && tools_->empty()) tools_ = nullptr;
}

ParsedDelta MessageParser::Take() {
  return std::exchange(delta_, {});
}

// The tags that have a meaning here.
TagSet MessageParser::Wanted() const {
  if (tools_ == nullptr) return {};
  switch (state_) {
    case State::kReasoning:
      return TagSet().Opener(TagKind::kCalls);
    case State::kMaybeBlock:
      return TagSet().Opener(TagKind::kInvoke);
    case State::kAnswer:
      return kClosers.Opener(TagKind::kCalls).Opener(TagKind::kInvoke);
    case State::kQuotedInvoke:
    case State::kBareInvoke:
      return kClosers.Opener(TagKind::kCalls).Opener(TagKind::kInvoke).Opener(TagKind::kParameter);
    case State::kBlock:
      return TagSet().Opener(TagKind::kInvoke).Closer(TagKind::kCalls);
    case State::kInvoke:
    case State::kParameter:
    case State::kSkippedParameter:
      return kClosers.Opener(TagKind::kInvoke).Opener(TagKind::kParameter);
    case State::kJsonBody:
      return TagSet().Opener(TagKind::kInvoke).Closer(TagKind::kInvoke).Closer(TagKind::kCalls);
    case State::kEnded:
      return {};
  }
  return {};
}

// How many newlines in front of a tag may go with it.
size_t MessageParser::HeldNewlines() const {
  switch (state_) {
    case State::kReasoning:
    case State::kAnswer:
    case State::kQuotedInvoke:
      return tools_ == nullptr ? 0 : 2;
    case State::kParameter:
      return 1;
    default:
      return 0;
  }
}

void MessageParser::Feed(std::string_view symbols) {
  while (!symbols.empty() && state_ != State::kEnded) {
    size_t plain = 0;
    if (!matching_) plain = static_cast<size_t>(std::ranges::find_if(symbols, IsSpecial) - symbols.begin());
    if (plain > 0) {
      at_start_ = false;
      FlushNewlines();
      Text(symbols.substr(0, plain));
      symbols.remove_prefix(plain);
    } else {
      Step(symbols.front());
      symbols.remove_prefix(1);
    }
  }
}

void MessageParser::Step(char symbol) {
  if (symbol == kEndSymbol) return Finish(CompletionEnd::kStop);
  const bool is_think = symbol == kThinkBeginSymbol || symbol == kThinkEndSymbol;
  if (is_think && !InBlock()) FailTags();
  while (matching_) {
    const TagMatcher::Progress progress = matcher_.Push(symbol);
    if (progress == TagMatcher::Progress::kFailed) {
      FailTag();
      continue;  // another may have begun inside it
    }
    held_ += symbol;
    if (progress == TagMatcher::Progress::kComplete) OnTag();
    return;
  }
  if (is_think) return OnThink(symbol);
  at_start_ = false;
  if (symbol == '\n') return OnNewline();
  const TagSet wanted = symbol == '<' ? Wanted() : TagSet();
  if (wanted.empty()) {
    FlushNewlines();
    return Text({&symbol, 1});
  }
  matcher_.Start(wanted);
  matching_ = true;
  held_ += symbol;
}

void MessageParser::OnNewline() {
  const size_t limit = HeldNewlines();
  if (limit == 0) return Text("\n");
  if (newlines_ == limit) {
    Text("\n");
  } else {
    held_ += '\n';
    ++newlines_;
  }
}

void MessageParser::OnThink(char symbol) {
  const bool ends = symbol == kThinkEndSymbol;
  FlushNewlines();
  if (state_ == State::kMaybeBlock && ends) ReturnMaybeBlock();
  if (state_ == State::kReasoning && ends) {
    reasoning_end_ = at_;
    state_ = State::kAnswer;
    at_start_ = true;
  } else if (state_ == State::kAnswer && !ends && at_start_) {
    state_ = State::kReasoning;  // the model reasons although the prompt said not to, or again
  } else if (state_ == State::kReasoning && at_start_) {
    // Repeats what the prompt ended with.
  } else if (state_ == State::kAnswer && ends) {
    // A stray one.
  } else if (state_ == State::kQuotedInvoke && ends && !in_quoted_value_) {
    // So is this.
  } else {
    return Text({&symbol, 1});
  }
  Drop({&symbol, 1});
}

// What was matched is no tag: its `<` is text, and the rest is looked at again, since a tag may begin between
// its quotes. That stays linear: of all tags that begin inside one that fails, no two get far, for what one
// of them takes as values the other takes as attribute names, and these hold no `<`.
void MessageParser::FailTag() {
  matching_ = false;
  const std::string held = std::exchange(held_, {});
  const size_t text = std::exchange(newlines_, 0) + 1;
  const bool broken = matcher_.broken_opener();
  Text(std::string_view(held).substr(0, text));
  if (broken && InBlock() && state_ != State::kParameter && state_ != State::kJsonBody) {
    if (matcher_.kind() == TagKind::kInvoke) {
      CloseCall();
      state_ = State::kBlock;
    } else if (state_ == State::kInvoke) {
      state_ = State::kSkippedParameter;
    }
  }
  Feed(std::string_view(held).substr(text));
}

void MessageParser::FailTags() {
  while (matching_) FailTag();
}

void MessageParser::OnTag() {
  matching_ = false;
  const MarkupTag tag = matcher_.tag();
  const std::string held = std::exchange(held_, {});
  const size_t newlines = std::exchange(newlines_, 0);
  if (InBlock()) {
    OnTagInBlock(tag, newlines);
    Drop(std::string_view(held).substr(newlines));
    return;
  }
  if (state_ == State::kMaybeBlock) {  // an invoke: it is a block
    reasoning_end_ = element_begin_;
    element_.clear();
    Drop(held);
    after_calls_ = true;
    state_ = State::kBlock;
    OpenCall(tag);
    return;
  }
  OnTagInAnswer(tag, newlines, held);
}

void MessageParser::OnTagInAnswer(const MarkupTag& tag, size_t newlines, std::string_view held) {
  const bool quoted_block = tag.kind == TagKind::kCalls && !tag.closes && in_quoted_value_;
  const bool ends_invoke = tag.kind == TagKind::kInvoke && tag.closes;
  switch (state_) {
    case State::kReasoning:
      BeginElement(newlines, held);
      state_ = State::kMaybeBlock;
      return;
    case State::kBareInvoke:
      Text(held);
      if (tag.kind == TagKind::kParameter) {
        in_quoted_value_ = !tag.closes && !tag.self_closing;
      } else if (ends_invoke) {
        AcceptBareInvoke();
      } else if (!quoted_block) {
        ReturnBareInvoke();
      }
      return;
    case State::kQuotedInvoke:
      if (tag.kind == TagKind::kParameter) in_quoted_value_ = !tag.closes && !tag.self_closing;
      if (ends_invoke) state_ = State::kAnswer;
      if (tag.kind == TagKind::kParameter || ends_invoke || quoted_block) return Text(held);
      state_ = State::kAnswer;
      break;
    default:
      break;
  }
  if (tag.closes) return Drop(held);  // an orphan
  if (tag.kind == TagKind::kInvoke) return OnBareInvoke(tag, newlines, held);
  DropSeparator(held.substr(0, newlines));
  Drop(held.substr(newlines));
  after_calls_ = true;
  if (!tag.self_closing) state_ = State::kBlock;
}

void MessageParser::OnBareInvoke(const MarkupTag& tag, size_t newlines, std::string_view held) {
  in_quoted_value_ = false;
  if (!tag.name || tools_->Find(*tag.name) == nullptr) {
    Text(held);
    if (!tag.self_closing) state_ = State::kQuotedInvoke;
    return;
  }
  BeginElement(newlines, held);
  state_ = State::kBareInvoke;
  if (tag.self_closing) AcceptBareInvoke();
}

void MessageParser::OnTagInBlock(const MarkupTag& tag, size_t newlines) {
  if (state_ == State::kParameter) {
    const bool closed = tag.kind == TagKind::kParameter && tag.closes;
    const std::string_view newline = std::string_view("\n").substr(0, newlines);
    if (closed) {
      Text(newline);
    } else {
      Drop(newline);
    }
    EndParameter();
  }
  if (tag.kind == TagKind::kParameter) {
    if (state_ == State::kSkippedParameter) state_ = State::kInvoke;
    if (!tag.closes) OpenParameter(tag);
    return;
  }
  CloseCall();
  state_ = tag.kind == TagKind::kCalls ? State::kAnswer : State::kBlock;
  if (!tag.closes) OpenCall(tag);
}

// Holds an element from its opening tag on, with the newlines that go if it counts.
void MessageParser::BeginElement(size_t newlines, std::string_view held) {
  if (newlines == 1) {  // stays whatever comes
    Text(held.substr(0, 1));
    held.remove_prefix(1);
  }
  element_ = held;
  element_opener_ = held.size();
  element_begin_ = at_;
  Drop(held);
}

// Parses what is held as in a block.
void MessageParser::AcceptBareInvoke() {
  const std::string element = std::exchange(element_, {});
  at_ = element_begin_;
  after_calls_ = true;
  state_ = State::kBlock;
  Feed(element);
  FailTags();
  FlushNewlines();
  CloseCall();
  state_ = State::kAnswer;
}

// What is held is text, but a tag that comes after its opening one keeps its meaning.
void MessageParser::ReturnBareInvoke() {
  const std::string element = std::exchange(element_, {});
  const std::string_view symbols = element;
  at_ = element_begin_;
  in_quoted_value_ = false;
  state_ = State::kQuotedInvoke;
  Text(symbols.substr(0, element_opener_));
  Feed(symbols.substr(element_opener_));
}

void MessageParser::ReturnMaybeBlock() {
  const std::string element = std::exchange(element_, {});
  at_ = element_begin_;
  state_ = State::kReasoning;
  Text(element);
}

void MessageParser::OpenCall(const MarkupTag& tag) {
  if (!tag.name || tag.name->empty()) return;  // the element is skipped as text between invokes
  delta_.calls.push_back({.index = call_count_++, .name = *tag.name, .arguments = {}, .complete = false});
  call_.emplace(tools_->Find(*tag.name));
  state_ = State::kInvoke;
  body_possible_ = true;
  if (!tag.self_closing) return;
  CloseCall();
  state_ = State::kBlock;
}

void MessageParser::CloseCall() {
  if (!call_) return;
  if (state_ == State::kParameter) EndParameter();
  std::string rest;
  if (state_ == State::kJsonBody) {
    call_->CloseWithBody(std::exchange(body_, {}), rest);
  } else {
    call_->Close(rest);
  }
  CallDelta& delta = Current();
  delta.arguments += rest;
  delta.complete = true;
  ++complete_calls_;
  call_.reset();
}

void MessageParser::OpenParameter(const MarkupTag& tag) {
  body_possible_ = false;
  if (!tag.name) {
    if (!tag.self_closing) state_ = State::kSkippedParameter;
    return;
  }
  std::string piece;
  call_->BeginParameter(*tag.name, tag.string, piece);
  AddArguments(piece);
  state_ = State::kParameter;
  if (tag.self_closing) EndParameter();
}

void MessageParser::EndParameter() {
  std::string piece;
  call_->EndParameter(piece);
  AddArguments(piece);
  state_ = State::kInvoke;
}

void MessageParser::AddArguments(std::string_view piece) {
  if (!piece.empty()) Current().arguments += piece;
}

// The delta of the open call.
CallDelta& MessageParser::Current() {
  const size_t index = call_count_ - 1;
  if (delta_.calls.empty() || delta_.calls.back().index != index) {
    delta_.calls.push_back({.index = index, .name = {}, .arguments = {}, .complete = false});
  }
  return delta_.calls.back();
}

void MessageParser::Finish(CompletionEnd end) {
  if (state_ == State::kEnded) return;
  if (InBlock()) {
    const bool whole =
        state_ != State::kParameter && (state_ != State::kJsonBody || CallArguments::IsObject(body_));
    if (end == CompletionEnd::kStop && whole) CloseCall();
  } else if (end == CompletionEnd::kStop || state_ != State::kBareInvoke) {
    if (end == CompletionEnd::kLength && state_ != State::kMaybeBlock) DropFragment();
    FailTags();
    while (state_ == State::kBareInvoke) {
      ReturnBareInvoke();
      FailTags();
    }
    if (state_ == State::kMaybeBlock) ReturnMaybeBlock();
    FlushNewlines();
    if (state_ == State::kReasoning) reasoning_end_ = at_;
  }
  state_ = State::kEnded;
}

// Of a tag that the length limit cut, what a reader should not see.
void MessageParser::DropFragment() {
  if (!matching_ || !matcher_.has_mark()) return;
  matching_ = false;
  const std::string held = std::exchange(held_, {});
  const std::string_view separator = std::string_view(held).substr(0, std::exchange(newlines_, 0));
  if (matcher_.closes()) {
    Drop(separator);
  } else {
    DropSeparator(separator);
  }
  Drop(std::string_view(held).substr(separator.size()));
}

void MessageParser::Text(std::string_view symbols) {
  switch (state_) {
    case State::kReasoning:
      Emit(symbols, delta_.reasoning, delta_.reasoning_spans);
      break;
    case State::kAnswer:
    case State::kQuotedInvoke:
      if (!after_calls_) Emit(symbols, delta_.content, delta_.content_spans);
      break;
    case State::kMaybeBlock:
    case State::kBareInvoke:
      element_ += symbols;
      break;
    case State::kInvoke:
      InvokeText(symbols);
      break;
    case State::kParameter: {
      std::string text, piece;
      AppendSpelled(symbols, text);
      call_->AppendText(text, piece);
      AddArguments(piece);
      break;
    }
    case State::kJsonBody:
      AppendSpelled(symbols, body_);
      break;
    case State::kBlock:
    case State::kSkippedParameter:
    case State::kEnded:
      break;
  }
  Drop(symbols);
}

void MessageParser::Emit(std::string_view symbols, std::string& text, std::vector<SourceSpan>& spans) const {
  if (symbols.empty()) return;
  if (spans.empty() || spans.back().end != at_) spans.push_back({at_, at_});
  const size_t before = text.size();
  AppendSpelled(symbols, text);
  spans.back().end += text.size() - before;
}

// Text between the tags of an invoke is nothing, unless it stands in place of parameters.
void MessageParser::InvokeText(std::string_view symbols) {
  const auto begin = std::ranges::find_if_not(symbols, IsJsonSpace);
  if (!body_possible_ || begin == symbols.end()) return;
  body_possible_ = false;
  if (*begin != '{') return;
  state_ = State::kJsonBody;
  AppendSpelled(symbols.substr(static_cast<size_t>(begin - symbols.begin())), body_);
}

// Passes over symbols that are no text, or whose text is dealt with.
void MessageParser::Drop(std::string_view symbols) {
  at_ += SpelledSize(symbols);
}

// What stands in front of an opener: the blank line goes, a single newline stays.
void MessageParser::DropSeparator(std::string_view newlines) {
  if (newlines.size() == 2) {
    Drop(newlines);
  } else {
    Text(newlines);
  }
}

void MessageParser::FlushNewlines() {
  if (newlines_ == 0) return;
  newlines_ = 0;
  Text(std::exchange(held_, {}));
}

}  // namespace millrace::text
