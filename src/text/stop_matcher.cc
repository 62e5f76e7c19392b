#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace millrace::text {
namespace {

std::vector<size_t> Borders(std::string_view text) {
  std::vector<size_t> border(text.size() + 1, 0);
  for (size_t i = 1; i < text.size(); ++i) {
    size_t length = border[i];
    while (length > 0 && text[length] != text[i]) length = border[length];
    border[i + 1] = text[length] == text[i] ? length + 1 : 0;
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    std::vector<size_t> borders = Borders(stop);
    patterns_.push_back({.text = std::move(stop), .fallback = std::move(borders)});
  }
}

void StopMatcher::Advance(Pattern& pattern, char byte) {
  while (pattern.matched > 0 && pattern.text[pattern.matched] != byte) {
    pattern.matched = pattern.fallback[pattern.matched];
  }
  if (pattern.text[pattern.matched] == byte) ++pattern.matched;
}

std::string StopMatcher::Push(std::string_view text) {
  std::string out;
  if (hit_) return out;
  size_t longest = held_.size();  // of all Pattern::matched
  std::string seen = std::exchange(held_, {});
  for (const char byte : text) {
    seen += byte;
    longest = 0;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& pattern = patterns_[i];
      if (pattern.text.empty()) continue;
      Advance(pattern, byte);
      longest = std::max(longest, pattern.matched);
      if (pattern.matched < pattern.text.size()) continue;
      if (!hit_ || pattern.text.size() > patterns_[*hit_].text.size()) hit_ = i;
    }
    if (hit_) return seen.substr(0, seen.size() - patterns_[*hit_].text.size());
  }
  out = seen.substr(0, seen.size() - longest);
  held_ = seen.substr(seen.size() - longest);
  return out;
}

std::string StopMatcher::Flush() {
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace millrace::text
