#include "base/event_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {

namespace {

using testing::ElementsAre;

std::vector<StreamEvent> FeedInParts(std::string_view bytes, size_t part) {
  EventStreamReader reader;
  std::vector<StreamEvent> events;
  for (size_t at = 0; at < bytes.size(); at += part) {
    const std::vector<StreamEvent> more = reader.Feed(bytes.substr(at, part)).value();
    events.insert(events.end(), more.begin(), more.end());
  }
  return events;
}

TEST(EventStream, GivesTheSameEventsHoweverTheBytesAreCut) {
  const std::string_view stream =
      ": keep-alive\n\ndata: {\"a\": 1}\n\nevent: ping\r\ndata:x\r\ndata:  y\r\n\r\nid: 3\ndata\n\n"
      "event: nothing\n\n\rdata: [DONE]\r\rdata: unfinished";
  const auto expected = ElementsAre(StreamEvent{"", "{\"a\": 1}"}, StreamEvent{"ping", "x\n y"},
                                    StreamEvent{"", ""}, StreamEvent{"", "[DONE]"});
  for (size_t part = 1; part <= stream.size(); ++part)
    EXPECT_THAT(FeedInParts(stream, part), expected) << part;
}

TEST(EventStream, RefusesAnEventThatNeverEnds) {
  EventStreamReader reader(64);
  const std::string line = "data: 0123456789\n";
  bool failed = false;
  for (int i = 0; i < 16 && !failed; ++i) {
    const auto events = reader.Feed(line);
    failed = !events.ok();
    if (failed) {
      EXPECT_THAT(events.error().message(), testing::HasSubstr("64 bytes"));
    }
  }
  EXPECT_TRUE(failed);
  EventStreamReader endless(64);
  EXPECT_FALSE(endless.Feed(std::string(65, 'x')).ok());
}

}  // namespace
}  // namespace millrace
