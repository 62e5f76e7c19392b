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

TEST(BufferedExchange, OutputIsReservedUntilTheNextIsTaken) {
  const auto outputs = ByteBudget::Create(250);
  const auto inline_poster = [](const std::function<void()>& task) { task(); };
  {
    BufferedExchange stream(inline_poster, kBound, outputs);
    stream.BeginStream({}, nullptr);
    stream.Write(std::string(60, 'x'));
    (void)stream.TakeHead();
    EXPECT_EQ(outputs->reserved_bytes(), 60u);
    (void)stream.TakeOutput();  // is being written
    stream.Write(std::string(40, 'x'));
    EXPECT_EQ(outputs->reserved_bytes(), 100u);
    (void)stream.TakeOutput();
    EXPECT_EQ(outputs->reserved_bytes(), 40u);

    BufferedExchange other(inline_poster, 10 * kBound, outputs);
    other.BeginStream({}, nullptr);
    other.Write(std::string(210, 'x'));
    EXPECT_FALSE(other.gone());
    stream.Write("x");  // nothing is left for anybody
    EXPECT_TRUE(stream.too_slow());
    EXPECT_EQ(outputs->reserved_bytes(), 250u);
  }
  EXPECT_EQ(outputs->reserved_bytes(), 0u);
}

TEST(BufferedExchange, AProbeIsAnsweredThoughNothingIsLeftForOutput) {
  const auto outputs = ByteBudget::Create(0);
  BufferedExchange probe([](const std::function<void()>& task) { task(); }, kBound, outputs);
  HttpResponse response;
  response.body = "alive";
  probe.Send(response);
  EXPECT_FALSE(probe.gone());
  BufferedExchange answer([](const std::function<void()>& task) { task(); }, kBound, outputs);
  response.body.assign(1 << 20, 'x');
  answer.Send(response);
  EXPECT_TRUE(answer.too_slow());
}

}  // namespace
}  // namespace millrace::api
