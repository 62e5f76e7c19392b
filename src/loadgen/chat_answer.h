#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/event_stream.h"
#include "loadgen/failure.h"

namespace millrace::loadgen {

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text, as it came

  bool operator==(const ToolCall&) const = default;
};

// What a model said in a streamed answer.
struct ChatAnswer {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  std::string finish_reason;  // empty until the server gives one

  // All that the sampled tokens decide, without ids: two runs of one prompt at temperature 0 give the same.
  std::string Transcript() const;
};

// The server's own counts.
struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<int64_t> cached_tokens;  // of the prompt; absent when the server does not tell
};

// Puts an answer together from the bytes of its event stream in OpenAI's dialect. Whatever a server sends is
// understood or named as a failure; nothing is trusted. One thread.
class ChatAnswerReader {
 public:
  // How many of the events that `bytes` complete carried generated text: content, reasoning or part of a
  // call. 0 once failed.
  int Feed(std::string_view bytes);
  // The body has ended; an answer without "[DONE]" or a finish reason is kClosedEarly.
  void End();

  const ChatAnswer& answer() const { return answer_; }
  const std::optional<Usage>& usage() const { return usage_; }
  const std::optional<Failure>& failure() const { return failure_; }
  // "[DONE]" came: what follows does not matter.
  bool done() const { return done_; }

 private:
  bool TakeEvent(const StreamEvent& event);  // whether it carried text

  EventStreamReader events_;
  ChatAnswer answer_;
  std::optional<Usage> usage_;
  std::optional<Failure> failure_;
  bool done_ = false;
};

// The first bytes of what a server sent, in one line that does not steer a terminal: all but printable ASCII
// is
// '?'.
std::string Printable(std::string_view text);

// The message of an error body {"error": {"message"}} or {"message"}, else the body itself; as Printable.
std::string ErrorText(std::string_view body);

}  // namespace millrace::loadgen
