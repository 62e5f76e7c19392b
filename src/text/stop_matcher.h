#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::text {

// Watches streamed text for stop strings. Text that may be the beginning of one is held back until that is
// decided, so nothing that belongs to a stop string is ever handed out.
//
// The hit is the stop string that is complete first; of several that end at one place, the one that begins
// first. This depends on the text alone, not on how it is cut into pushes. One stream, one thread.
class StopMatcher {
 public:
  // Stop strings are valid UTF-8; empty ones never match. Work per byte grows with their number.
  explicit StopMatcher(std::vector<std::string> stops);

  // The text that may go out now. After a hit: what stood before the stop string, and then nothing any more.
  std::string Push(std::string_view text);
  // The end of the stream: what was still held back (nothing after a hit).
  std::string Flush();

  // Index into the stop strings given, once one was found: the generation can be ended.
  std::optional<size_t> hit() const { return hit_; }

 private:
  // Progress in one stop string, by Knuth, Morris and Pratt.
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // [size + 1]: length of the longest proper border of each prefix
    size_t matched = 0;            // the longest prefix that the stream now ends with
  };
  static void Advance(Pattern& pattern, char byte);

  std::vector<Pattern> patterns_;
  std::string held_;  // as long as the longest Pattern::matched
  std::optional<size_t> hit_;
};

}  // namespace millrace::text
