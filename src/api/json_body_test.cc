#include "api/json_body.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::api {
namespace {

TEST(JsonBody, ManySmallValuesAreBoundedByMemoryNotByText) {
  std::string body = "{\"a\":[0";
  for (int i = 0; i < 100'000; ++i) body += ",0";
  body += "]}";
  EXPECT_TRUE(std::holds_alternative<boost::json::object>(ParseJsonBody(body)));
  JsonLimits limits;
  limits.max_memory_bytes = 1 << 20;
  const auto refused = ParseJsonBody(body, limits);
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).status(), 413);
}

}  // namespace
}  // namespace millrace::api
