#include "base/log.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

TEST(Log, AnEventInTextQuotesWhatWouldMislead) {
  const LogField fields[] = {{"path", "/v1/models"},   {"id", "a b=\"c\"\n"}, {"none", ""},
                             {"status", int64_t{200}}, {"seconds", 0.25},     {"gone", false}};
  EXPECT_EQ(FormatEvent("request", fields, LogFormat::kText),
            R"(request path=/v1/models id="a b=\"c\"\n" none="" status=200 seconds=0.25 gone=false)");
}

TEST(Log, AnEventInJsonHasAMemberForEachFact) {
  const LogField fields[] = {{"id", "a\x01\\"}, {"status", int64_t{-1}}, {"rate", 12345.678}, {"gone", true}};
  EXPECT_EQ(FormatEvent("request", fields, LogFormat::kJson),
            R"("event":"request","id":"a\u0001\\","status":-1,"rate":12345.678,"gone":true)");
}

TEST(Log, JsonLinesAreWholeObjects) {
  ::testing::internal::CaptureStderr();
  const Status set_up = SetUpLog("info", LogFormat::kJson);
  ASSERT_TRUE(set_up.ok());
  spdlog::info("two\nlines and a \"quote\"");
  const LogField fields[] = {{"running", int64_t{2}}};
  LogEvent("stats", fields);
  spdlog::debug("below the level");
  spdlog::default_logger()->flush();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find(R"("level":"info","message":"two\nlines and a \"quote\""})"), std::string::npos) << log;
  EXPECT_NE(log.find(R"("level":"info","event":"stats","running":2})"), std::string::npos) << log;
  EXPECT_EQ(log.find("below"), std::string::npos) << log;
  EXPECT_EQ(log.find(R"({"time":"2)"), 0u) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
}

TEST(Log, AnUnknownLevelIsRefusedByName) {
  const Status status = SetUpLog("loud");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message(),
            "log level 'loud' is unknown; use trace, debug, info, warning, error or off");
}

}  // namespace
}  // namespace millrace
