#include "text/markup_tag.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/completion_symbols.h"

namespace millrace::text {
namespace {

// A longer tag is none: what a model in a loop writes between quotes is not held back for ever.
constexpr size_t kMaxTagSymbols = size_t{1} << 16;

// None is the beginning of another.
constexpr std::array<std::string_view, 7> kTokenMarks = {"\xF8",     "｜\xF8｜", "｜｜DSML｜｜", "|DSML|",
                                                         "||DSML||", "‖DSML‖",   "DSML｜"};
constexpr std::array<std::string_view, 6> kSpelledMarks = {"｜DSML｜", "｜｜DSML｜｜", "|DSML|",
                                                           "||DSML||", "‖DSML‖",       "DSML｜"};
static_assert(kTokenMarks[0][0] == kDsmlSymbol);

struct NamedKind {
  std::string_view name;
  TagKind kind;
};
constexpr std::array kNames = {
    NamedKind{"calls", TagKind::kCalls},          NamedKind{"tool_calls", TagKind::kCalls},
    NamedKind{"function_calls", TagKind::kCalls}, NamedKind{"invoke", TagKind::kInvoke},
    NamedKind{"parameter", TagKind::kParameter},
};

bool IsSpace(char symbol) {
  return symbol == ' ' || symbol == '\n' || symbol == '\t' || symbol == '\r';
}

bool IsKeyCharacter(char symbol) {
  return !IsSpace(symbol) && std::string_view("=\"<>/").find(symbol) == std::string_view::npos;
}

}  // namespace

void TagMatcher::Start(TagSet wanted) {
  wanted_ = wanted;
  part_ = Part::kSlash;
  size_ = 1;
  complete_ = false;
  mark_.clear();
  word_.clear();
  value_.clear();
  tag_ = {};
}

TagMatcher::Progress TagMatcher::Push(char symbol) {
  if (size_ == kMaxTagSymbols || !Accept(symbol)) return Progress::kFailed;
  ++size_;
  return complete_ ? Progress::kComplete : Progress::kPartial;
}

bool TagMatcher::has_mark() const {
  if (part_ > Part::kMark) return true;
  // All of a doubled mark but its last bar.
  return std::ranges::any_of(std::array<std::string_view, 3>{"\xF8", "DSML｜", "DSML|"},
                             [&](std::string_view mark) { return mark_.find(mark) != std::string::npos; });
}

bool TagMatcher::Accept(char symbol) {
  switch (part_) {
    case Part::kSlash:
      part_ = Part::kMark;
      if (symbol != '/') return AcceptMark(symbol);
      tag_.closes = true;
      return true;
    case Part::kMark:
      return AcceptMark(symbol);
    case Part::kSpace:
      part_ = Part::kName;
      return symbol == ' ' || AcceptName(symbol);
    case Part::kName:
      return AcceptName(symbol);
    case Part::kGap:
      return AcceptInTag(symbol, /*gap=*/true);
    case Part::kKey:
      if (symbol == '=') {
        part_ = Part::kEquals;
        return true;
      }
      word_ += symbol;
      return IsKeyCharacter(symbol);
    case Part::kEquals:
      part_ = Part::kValue;
      return symbol == '"';
    case Part::kValue:
      if (symbol == '"') {
        EndAttribute();
      } else {
        value_ += symbol;
      }
      return true;
    case Part::kAfterValue:
      return AcceptInTag(symbol, /*gap=*/false);
    case Part::kClose:
      complete_ = symbol == '>';
      return complete_;
  }
  return false;
}

bool TagMatcher::AcceptMark(char symbol) {
  mark_ += symbol;
  const auto accept = [&](const auto& marks) {
    return std::ranges::any_of(marks, [&](std::string_view mark) {
      if (!mark.starts_with(mark_)) return false;
      if (mark.size() == mark_.size()) part_ = Part::kSpace;
      return true;
    });
  };
  return mark_input_ == MarkInput::kToken ? accept(kTokenMarks) : accept(kSpelledMarks);
}

bool TagMatcher::AcceptName(char symbol) {
  const auto match = std::ranges::find_if(kNames, [&](const NamedKind& named) {
    return named.name == word_ && wanted_.Has(named.kind, tag_.closes);
  });
  if (match != kNames.end()) {  // no name begins another
    tag_.kind = match->kind;
    word_.clear();
    if (!tag_.closes) return AcceptInTag(symbol, /*gap=*/false);
    complete_ = symbol == '>';
    return complete_;
  }
  word_ += symbol;
  return std::ranges::any_of(kNames, [&](const NamedKind& named) {
    return named.name.starts_with(word_) && wanted_.Has(named.kind, tag_.closes);
  });
}

// Behind the name or a value, or in white space behind it (`gap`).
bool TagMatcher::AcceptInTag(char symbol, bool gap) {
  if (IsSpace(symbol)) {
    part_ = Part::kGap;
  } else if (symbol == '>') {
    complete_ = true;
  } else if (symbol == '/') {
    tag_.self_closing = true;
    part_ = Part::kClose;
  } else if (gap && IsKeyCharacter(symbol)) {
    word_ = symbol;
    part_ = Part::kKey;
  } else {
    return false;
  }
  return true;
}

void TagMatcher::EndAttribute() {
  std::string value;
  AppendSpelled(std::exchange(value_, {}), value);
  if (word_ == "name")
    tag_.name = std::move(value);
  else if (word_ == "string")
    tag_.string = std::move(value);
  part_ = Part::kAfterValue;
}

}  // namespace millrace::text
