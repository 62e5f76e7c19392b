#include "app/config_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace millrace::app {
namespace {

constexpr std::string_view kBlanks = " \t\r";

bool IsBlank(char c) {
  return kBlanks.find(c) != std::string_view::npos;
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Reads the values of one line from left to right.
class ValueReader {
 public:
  explicit ValueReader(std::string_view text) : text_(text) {}

  // Up to a comment or, inside a list, a comma or the bracket. nullopt: `error` says why.
  std::optional<std::string> Scalar(bool in_list) {
    SkipBlanks();
    if (AtEnd()) return "";
    const char quote = text_[at_];
    return quote == '"' || quote == '\'' ? Quoted(quote) : Bare(in_list);
  }

  std::optional<std::vector<std::string>> List() {
    ++at_;  // '['
    std::vector<std::string> values;
    while (true) {
      SkipBlanks();
      if (Take(']')) return values;
      std::optional<std::string> value = Scalar(/*in_list=*/true);
      if (!value) return std::nullopt;
      values.push_back(*std::move(value));
      SkipBlanks();
      if (Take(']')) return values;
      if (!Take(',')) return Fail<std::vector<std::string>>("the list has no ']'; lists end on their line");
    }
  }

  bool StartsList() {
    SkipBlanks();
    return at_ < text_.size() && text_[at_] == '[';
  }
  // Nothing but a comment is left.
  bool AtEnd() {
    SkipBlanks();
    return at_ == text_.size() || (text_[at_] == '#' && (at_ == 0 || IsBlank(text_[at_ - 1])));
  }
  const std::string& error() const { return error_; }

 private:
  template <typename T>
  std::optional<T> Fail(std::string message) {
    error_ = std::move(message);
    return std::nullopt;
  }

  void SkipBlanks() { at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size()); }
  bool Take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::optional<std::string> Quoted(char quote) {
    std::string value;
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == quote) {
        ++at_;
        return value;
      }
      const bool escape = c == '\\' && quote == '"' && at_ + 1 < text_.size();
      if (!escape) {
        value += c;
        continue;
      }
      const char next = text_[++at_];
      value += next == 'n' ? '\n' : next == 't' ? '\t' : next;
    }
    return Fail<std::string>(fmt::format("the quote {} is not closed", quote));
  }

  std::string Bare(bool in_list) {
    const size_t begin = at_;
    while (at_ < text_.size() && !AtComment() && !(in_list && (text_[at_] == ',' || text_[at_] == ']')))
      ++at_;
    return std::string(Trimmed(text_.substr(begin, at_ - begin)));
  }
  bool AtComment() const { return text_[at_] == '#' && at_ > 0 && IsBlank(text_[at_ - 1]); }

  std::string_view text_;
  size_t at_ = 0;
  std::string error_;
};

Error AtLine(int line, std::string_view what) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", line, what));
}

// What stands behind a key's colon or an item's dash.
Result<std::vector<std::string>> ReadValues(std::string_view text, int line) {
  ValueReader reader(text);
  std::optional<std::vector<std::string>> values;
  if (reader.StartsList()) {
    values = reader.List();
  } else if (std::optional<std::string> scalar = reader.Scalar(/*in_list=*/false)) {
    values = std::vector<std::string>{*std::move(scalar)};
  }
  if (!values) return AtLine(line, reader.error());
  if (!reader.AtEnd()) return AtLine(line, "there is more behind the value; put the whole value in quotes");
  return *std::move(values);
}

bool NeedsQuotes(std::string_view value) {
  return value.empty() || value != Trimmed(value) || value.find_first_of("\"\\,[]#\n\t") != value.npos ||
         value.front() == '\'' || value.front() == '-' || value.front() == '{';
}

}  // namespace

Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text) {
  std::vector<ConfigEntry> entries;
  bool items_may_follow = false;  // the last key has no value on its own line
  int line = 0;
  while (!text.empty()) {
    ++line;
    const std::string_view raw = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(raw.size() + 1, text.size()));
    const std::string_view content = Trimmed(raw);
    if (content.empty() || content.front() == '#' || content == "---") continue;
    const bool is_item = content == "-" || content.starts_with("- ");
    if (is_item && items_may_follow) {
      MILLRACE_ASSIGN_OR_RETURN(const auto values, ReadValues(content.substr(1), line));
      entries.back().values.insert(entries.back().values.end(), values.begin(), values.end());
      continue;
    }
    const size_t colon = content.find(':');
    if (is_item || IsBlank(raw.front()))
      return AtLine(line, "nothing may be nested but the items of a list ('- value') under its key");
    if (colon == std::string_view::npos || colon == 0 ||
        (colon + 1 < content.size() && !IsBlank(content[colon + 1])))
      return AtLine(line, "expected 'key: value'");  // not the line itself: it may hold a key
    ConfigEntry entry{std::string(Trimmed(content.substr(0, colon))), {}, line};
    const auto is_same = [&](const ConfigEntry& other) { return other.key == entry.key; };
    if (const auto first = std::ranges::find_if(entries, is_same); first != entries.end())
      return AtLine(line,
                    fmt::format("'{}' is given a second time, first on line {}", entry.key, first->line));
    const std::string_view rest = content.substr(colon + 1);
    items_may_follow = ValueReader(rest).AtEnd();
    if (!items_may_follow) {
      MILLRACE_ASSIGN_OR_RETURN(entry.values, ReadValues(rest, line));
    }
    entries.push_back(std::move(entry));
  }
  for (const ConfigEntry& entry : entries)
    if (entry.values.empty()) return AtLine(entry.line, fmt::format("'{}' has no value", entry.key));
  return entries;
}

std::string FormatConfigEntry(std::string_view key, const std::vector<std::string>& values, bool is_list) {
  std::string line = fmt::format("{}: ", key);
  if (is_list || values.size() != 1) line += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) line += ", ";
    if (!NeedsQuotes(values[i])) {
      line += values[i];
      continue;
    }
    line += '"';
    for (const char c : values[i]) {
      if (c == '"' || c == '\\') line += '\\';
      line += c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string(1, c);
    }
    line += '"';
  }
  if (is_list || values.size() != 1) line += ']';
  return line;
}

}  // namespace millrace::app
