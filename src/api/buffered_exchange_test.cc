#include "api/buffered_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace millrace::api {
namespace {

using ::testing::_;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr size_t kBound = 100;

class BufferedExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    exchange_.BeginStream({}, nullptr);
    (void)exchange_.TakeHead();
  }
  void Write(size_t bytes) { exchange_.Write(std::string(bytes, 'x')); }

  BufferedExchange exchange_{[](const std::function<void()>& task) { task(); },
                             OutputRoom{.max_stream_bytes = kBound}};
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

// Connections that share a budget, each with a little of its own.
class SharedOutputTest : public ::testing::Test {
 protected:
  static constexpr size_t kOwn = 2000;
  static constexpr size_t kShared = 5000;
  static constexpr size_t kLastWord = 300;

  std::unique_ptr<BufferedExchange> Connect(Dialect dialect = Dialect::kOpenAi) {
    own_.push_back(ByteBudget::Create(kOwn));
    return std::make_unique<BufferedExchange>([](const std::function<void()>& task) { task(); },
                                              OutputRoom{10 * kShared, own_.back(), shared_, kOwn, kShared},
                                              dialect);
  }
  std::unique_ptr<BufferedExchange> ConnectStream() {
    auto stream = Connect();
    stream->BeginStream({}, nullptr);
    (void)stream->TakeHead();
    return stream;
  }
  size_t reserved_bytes() const {
    size_t sum = shared_->reserved_bytes();
    for (const auto& own : own_) sum += own->reserved_bytes();
    return sum;
  }
  static HttpResponse Answer(size_t bytes) {
    return {.headers = {{"X-Request-Id", "r1"}}, .body = std::string(bytes, 'x')};
  }

  std::shared_ptr<ByteBudget> shared_ = ByteBudget::Create(kShared);
  std::vector<std::shared_ptr<ByteBudget>> own_;
};

TEST_F(SharedOutputTest, OutputIsReservedUntilTheNextIsTaken) {
  {
    const auto stream = Connect();
    stream->BeginStream({}, nullptr);
    stream->Write(std::string(2600, 'x'));
    (void)stream->TakeHead();
    EXPECT_EQ(reserved_bytes(), 2600u);
    EXPECT_EQ(shared_->reserved_bytes(), 600u);
    (void)stream->TakeOutput();  // is being written
    stream->Write(std::string(400, 'x'));
    EXPECT_EQ(reserved_bytes(), 3000u);
    (void)stream->TakeOutput();
    EXPECT_EQ(reserved_bytes(), 400u);
    stream->MarkDelivered();
    EXPECT_EQ(reserved_bytes(), 0u);  // though a handler may hold the exchange for long
    stream->Write(std::string(400, 'x'));
  }
  EXPECT_EQ(reserved_bytes(), 0u);
}

TEST_F(SharedOutputTest, WhoReadsIsNotCutOffByWhoDoesNot) {
  const auto slow = ConnectStream();
  slow->Write(std::string(kOwn + kShared, 'x'));  // nothing is left for anybody
  EXPECT_FALSE(slow->gone());
  const auto reader = ConnectStream();
  for (int i = 0; i < 100; ++i) {
    reader->Write(std::string(kOwn / 2, 'x'));
    EXPECT_EQ(reader->TakeOutput().size(), kOwn / 2);
  }
  EXPECT_FALSE(reader->gone());
  slow->Write("x");
  EXPECT_TRUE(slow->too_slow());
  EXPECT_EQ(shared_->reserved_bytes(), 0u);
}

TEST_F(SharedOutputTest, AStreamThatFillsItsOwnPartWhenNothingElseIsLeftIsTooSlow) {
  const auto slow = ConnectStream();
  slow->Write(std::string(kOwn + kShared, 'x'));
  const auto other = ConnectStream();
  other->Write(std::string(kOwn, 'x'));
  EXPECT_FALSE(other->gone());
  other->Write("x");
  EXPECT_TRUE(other->too_slow());
  EXPECT_EQ(reserved_bytes(), kOwn + kShared);
}

// One that kept up, and whose next events are larger than what is left.
TEST_F(SharedOutputTest, AWriteWithoutRoomIsRefusedAndALastWordFindsSome) {
  const auto slow = ConnectStream();
  slow->Write(std::string(kOwn + kShared, 'x'));
  own_.push_back(ByteBudget::Create(kOwn));
  BufferedExchange stream([](const std::function<void()>& task) { task(); },
                          OutputRoom{10 * kShared, own_.back(), shared_, kOwn, kShared, kLastWord});
  stream.BeginStream({}, nullptr);
  (void)stream.TakeHead();
  EXPECT_TRUE(stream.Write(std::string(kOwn - kLastWord, 'x')));
  (void)stream.TakeOutput();  // is being written
  EXPECT_FALSE(stream.Write("x"));
  EXPECT_FALSE(stream.gone());
  EXPECT_FALSE(stream.Write(std::string(kLastWord + 1, 'x')));
  EXPECT_TRUE(stream.Write(std::string(kLastWord, 'x')));
  EXPECT_EQ(stream.TakeOutput().size(), kLastWord);
}

TEST_F(SharedOutputTest, AnAnswerThatBringsItsMemoryNeedsNoRoom) {
  const auto slow = ConnectStream();
  slow->Write(std::string(kOwn + kShared, 'x'));
  const auto answers = ByteBudget::Create(10 * kShared);
  const auto whole = Connect();
  HttpResponse response = Answer(2 * kShared);
  response.body_memory = answers->Reserve(2 * kShared).value();
  EXPECT_EQ(whole->Send(std::move(response)).status, 200);
  EXPECT_EQ(answers->reserved_bytes(), 2 * kShared);
  EXPECT_EQ(whole->TakeHead()->body.size(), 2 * kShared);
  EXPECT_EQ(answers->reserved_bytes(), 0u);
}

TEST_F(SharedOutputTest, AWholeAnswerWithoutRoomIsAnErrorThatSaysSo) {
  const auto slow = ConnectStream();
  slow->Write(std::string(kOwn + kShared, 'x'));
  const auto probe = Connect();
  probe->Send(Answer(kOwn));
  EXPECT_EQ(probe->TakeHead()->status, 200);
  const auto answer = Connect();
  const SentAnswer sent = answer->Send(Answer(kOwn + 1));
  EXPECT_EQ(sent.status, 503);
  EXPECT_EQ(sent.error_code, "overloaded");
  EXPECT_FALSE(answer->gone());
  const HttpResponse refusal = answer->TakeHead().value();
  EXPECT_EQ(refusal.status, 503);
  EXPECT_EQ(refusal.body.size(), sent.body_bytes);
  EXPECT_THAT(refusal.body, HasSubstr("2001 bytes"));
  EXPECT_THAT(refusal.headers, Contains(Pair("X-Request-Id", "r1")));
  EXPECT_THAT(refusal.headers, Contains(Pair("Retry-After", _)));
}

TEST_F(SharedOutputTest, AnAnswerThatCanNeverFitSaysWhatToGive) {
  const auto whole = Connect(Dialect::kAnthropic);
  whole->Send(Answer(kOwn + kShared));
  EXPECT_EQ(whole->TakeHead()->body.size(), kOwn + kShared);
  whole->MarkDelivered();
  const auto too_large = Connect(Dialect::kAnthropic);
  too_large->Send(Answer(kOwn + kShared + 1));
  const HttpResponse refusal = too_large->TakeHead().value();
  EXPECT_EQ(refusal.status, 413);
  EXPECT_THAT(refusal.body, HasSubstr("7001 bytes, more than the 7000"));
  EXPECT_THAT(refusal.body, HasSubstr("--max-unread-total"));
  EXPECT_THAT(refusal.body, HasSubstr(R"("type":"error")"));
  EXPECT_EQ(reserved_bytes(), refusal.body.size());
}

}  // namespace
}  // namespace millrace::api
