#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

// One server-sent event: `name` is empty when the stream gives none.
struct StreamEvent {
  std::string name;
  std::string data;  // the lines of the event joined by '\n'

  bool operator==(const StreamEvent&) const = default;
};

// Splits a text/event-stream into events while its bytes arrive, cut anywhere: lines end with CR, LF or both,
// comments and fields other than `event` and `data` are left out, as is an event without data. One thread.
class EventStreamReader {
 public:
  static constexpr size_t kDefaultMaxEventBytes = size_t{16} << 20;

  explicit EventStreamReader(size_t max_event_bytes = kDefaultMaxEventBytes)
      : max_event_bytes_(max_event_bytes) {}

  // The events that `bytes` complete, in order. Error kCorrupt when an unfinished event has grown past the
  // limit; the stream is lost then.
  Result<std::vector<StreamEvent>> Feed(std::string_view bytes);

 private:
  void TakeLine(std::vector<StreamEvent>& events);

  size_t max_event_bytes_;
  std::string line_;
  bool after_cr_ = false;  // an LF that follows belongs to that line's end
  bool has_data_ = false;
  StreamEvent event_;
};

}  // namespace millrace
