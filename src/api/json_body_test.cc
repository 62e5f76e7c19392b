#include "api/json_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace millrace::api {
namespace {

TEST(JsonBody, ManySmallValuesAreBoundedByTheirNumberNotByText) {
  std::string body = "{\"a\":[0";
  for (int i = 0; i < 100'000; ++i) body += ",0";
  body += "]}";
  EXPECT_TRUE(std::holds_alternative<text::OrderedJson>(ParseJsonBody(body)));
  text::OrderedJsonLimits limits = kBodyLimits;
  limits.max_values = 100'000;
  const auto refused = ParseJsonBody(body, limits);
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).status(), 413);
  EXPECT_THAT(std::get<ApiError>(refused).message, ::testing::HasSubstr("more than 100000 values"));
}

}  // namespace
}  // namespace millrace::api
