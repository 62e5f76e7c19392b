// The splitter of event streams: any bytes, cut anywhere, give the events that they give in one piece. The
// first byte says where to cut.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/event_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t part = size_t{1} + data[0] % 16;
  EventStreamReader whole_reader, parts_reader;
  const Result<std::vector<StreamEvent>> whole = whole_reader.Feed(bytes);
  std::vector<StreamEvent> parts;
  for (size_t at = 0; at < bytes.size(); at += part) {
    Result<std::vector<StreamEvent>> events = parts_reader.Feed(bytes.substr(at, part));
    MILLRACE_CHECK(events.ok(), "an input of the fuzzer is smaller than the limit");
    for (StreamEvent& event : *events) parts.push_back(std::move(event));
  }
  MILLRACE_CHECK(whole.ok() && *whole == parts, "events depend on where the bytes are cut");
  return 0;
}
