#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace::text {

// Where a piece of emitted text stood in the completion: a half-open range of positions (see
// CompletionParser::position), as long as the piece.
struct SourceSpan {
  size_t begin = 0;
  size_t end = 0;

  bool operator==(const SourceSpan&) const = default;
};

// What a parser learned of one call. The arguments of a call's deltas concatenate to the text of a JSON
// object once it is complete (a parameter that the model gave twice is a key twice there: the last counts).
// A call that never completes just stops.
struct CallDelta {
  size_t index = 0;  // of the call among those of the completion
  std::string name;  // as the model wrote it ("ns::name"); only in the call's first delta, never empty there
  std::string arguments;  // the next piece of JSON text
  bool complete = false;  // nothing more comes of this call
};

// What some input added to the parse: valid UTF-8, and final. Text goes out as soon as it can no longer be
// part of a marker or of an unfinished character.
struct ParsedDelta {
  std::string reasoning;
  std::string content;
  // Where the texts above come from, ascending; the lengths add up to those of the texts.
  std::vector<SourceSpan> reasoning_spans;
  std::vector<SourceSpan> content_spans;
  std::vector<CallDelta> calls;  // ascending; after `content`, which never grows once a call was announced

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

// How a generation ended.
enum class CompletionEnd : uint8_t {
  kStop,    // by the end token, or by what the request asked to stop at
  kLength,  // cut off by a limit
};

}  // namespace millrace::text
