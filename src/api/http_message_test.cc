#include "api/http_message.h"

#include <gtest/gtest.h>

namespace millrace::api {
namespace {

TEST(SplitTarget, TakesTheOriginForm) {
  EXPECT_EQ(SplitTarget("/v1/models").path, "/v1/models");
  EXPECT_EQ(SplitTarget("/v1/models").query, "");
  EXPECT_EQ(SplitTarget("/v1/models?a=b?c").path, "/v1/models");
  EXPECT_EQ(SplitTarget("/v1/models?a=b?c").query, "a=b?c");
  EXPECT_EQ(SplitTarget("/http://host/").path, "/http://host/");
  EXPECT_EQ(SplitTarget("*").path, "*");
}

TEST(SplitTarget, TakesTheAbsoluteForm) {
  for (const char* target : {"http://host/v1/models?a=b", "https://host:8000/v1/models?a=b",
                             "HTTP://user@[::1]:8000/v1/models?a=b", "http:///v1/models?a=b"}) {
    EXPECT_EQ(SplitTarget(target).path, "/v1/models") << target;
    EXPECT_EQ(SplitTarget(target).query, "a=b") << target;
  }
  for (const char* target : {"http://host", "http://host/", "http://host?a=b", "http://"})
    EXPECT_EQ(SplitTarget(target).path, "/") << target;
  EXPECT_EQ(SplitTarget("http://host?a=/b").query, "a=/b");
}

TEST(FindHeader, IgnoresCaseAndTakesTheFirst) {
  const HttpHeaders headers = {{"Host", "one"}, {"X-Request-Id", "two"}, {"x-request-id", "three"}};
  EXPECT_EQ(FindHeader(headers, "x-REQUEST-id"), "two");
  EXPECT_EQ(FindHeader(headers, "x-request"), "");
}

}  // namespace
}  // namespace millrace::api
