#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "text/parsed_delta.h"
#include "text/parsed_message.h"
#include "text/utf8.h"

namespace millrace::text {

// Whether `spans` say where `text` stands in `completion`, behind `after`, which moves to their end.
inline bool SpansSpell(const std::vector<SourceSpan>& spans, std::string_view text,
                       std::string_view completion, size_t& after) {
  for (const SourceSpan& span : spans) {
    if (span.begin < after || span.end <= span.begin || span.end > completion.size()) return false;
    const std::string_view source = completion.substr(span.begin, span.end - span.begin);
    if (!text.starts_with(source)) return false;
    text.remove_prefix(source.size());
    after = span.end;
  }
  return text.empty();
}

// Adds up deltas and checks each against what ParsedDelta promises; `error` names the first broken promise.
class DeltaChecker {
 public:
  // `completion` as valid UTF-8 with its control tokens spelled out, all of it.
  explicit DeltaChecker(std::string_view completion) : completion_(completion) {}

  void Add(const ParsedDelta& delta) {
    if (delta.empty() && delta.reasoning_spans.empty() && delta.content_spans.empty()) return;
    Check(IsUtf8(delta.reasoning) && IsUtf8(delta.content), "invalid UTF-8");
    Check(SpansSpell(delta.reasoning_spans, delta.reasoning, completion_, reasoning_end_),
          "the reasoning stands elsewhere");
    Check(SpansSpell(delta.content_spans, delta.content, completion_, content_end_),
          "the content stands elsewhere");
    Check(message_.calls.empty() || delta.content.empty(), "content behind a call");
    for (const CallDelta& call : delta.calls) {
      const size_t count = message_.calls.size() + (&call - delta.calls.data());
      Check(call.index <= count, "an index is left out");
      Check(call.name.empty() == (call.index < known_), "a name comes twice or not at all");
      known_ = std::max(known_, call.index + 1);
      Check(call.index >= message_.calls.size() || !message_.calls[call.index].complete,
            "more of a complete call");
      Check(IsUtf8(call.name) && IsUtf8(call.arguments), "invalid UTF-8 in a call");
    }
    message_.Append(delta);
  }

  const ParsedMessage& message() const { return message_; }
  const char* error() const { return error_; }

 private:
  void Check(bool holds, const char* promise) {
    if (!holds && error_ == nullptr) error_ = promise;
  }

  std::string_view completion_;
  ParsedMessage message_;
  size_t reasoning_end_ = 0;
  size_t content_end_ = 0;
  size_t known_ = 0;
  const char* error_ = nullptr;
};

}  // namespace millrace::text
