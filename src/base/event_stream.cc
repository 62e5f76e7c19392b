#include "base/event_stream.h"

#include <fmt/format.h>

#include <utility>

namespace millrace {

Result<std::vector<StreamEvent>> EventStreamReader::Feed(std::string_view bytes) {
  std::vector<StreamEvent> events;
  while (!bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    line_.append(bytes.substr(0, end));
    if (line_.size() + event_.data.size() > max_event_bytes_) {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("an event of the stream is larger than {} bytes", max_event_bytes_));
    }
    if (end == std::string_view::npos) break;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    TakeLine(events);
  }
  return events;
}

void EventStreamReader::TakeLine(std::vector<StreamEvent>& events) {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    StreamEvent event = std::exchange(event_, {});
    if (std::exchange(has_data_, false)) events.push_back(std::move(event));
    return;
  }
  const size_t colon = line.find(':');
  const std::string_view field = std::string_view(line).substr(0, colon);
  std::string_view value =
      colon == std::string::npos ? std::string_view() : std::string_view(line).substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    if (has_data_) event_.data += '\n';
    event_.data += value;
    has_data_ = true;
  } else if (field == "event") {
    event_.name = value;
  }
}

}  // namespace millrace
