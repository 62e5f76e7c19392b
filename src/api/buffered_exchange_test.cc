#include "api/buffered_exchange.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace millrace::api {
namespace {

constexpr size_t kBound = 100;

class BufferedExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    exchange_.BeginStream({}, nullptr);
    (void)exchange_.TakeHead();
  }
  void Write(size_t bytes) { exchange_.Write(std::string(bytes, 'x')); }

  BufferedExchange exchange_{[](const std::function<void()>& task) { task(); }, kBound};
};

TEST_F(BufferedExchangeTest, AClientThatTakesNothingIsTooSlow) {
  for (int i = 0; i < 11; ++i) Write(10);
  EXPECT_FALSE(exchange_.too_slow());
  Write(10);
  EXPECT_TRUE(exchange_.too_slow());
  EXPECT_TRUE(exchange_.gone());
}

TEST_F(BufferedExchangeTest, OneLargeWriteIsNotItsReadersFault) {
  Write(10);
  Write(10 * kBound);
  Write(kBound - 10);
  EXPECT_FALSE(exchange_.too_slow());
  EXPECT_EQ(exchange_.TakeOutput().size(), 11 * kBound);
  Write(10 * kBound);
  Write(kBound);
  EXPECT_FALSE(exchange_.too_slow());
  Write(1);
  EXPECT_TRUE(exchange_.too_slow());
}

}  // namespace
}  // namespace millrace::api
