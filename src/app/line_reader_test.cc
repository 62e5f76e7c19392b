#include "app/line_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace millrace::app {
namespace {

// A pipe to read from, and the signal that may interrupt it.
class LineReaderTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe(pipe_), 0); }
  void TearDown() override {
    close(pipe_[0]);
    CloseInput();
  }
  void Write(std::string_view text) {
    ASSERT_EQ(write(pipe_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void CloseInput() {
    if (pipe_[1] >= 0) close(pipe_[1]);
    pipe_[1] = -1;
  }
  static std::string Line(LineReader& lines) {
    const auto line = lines.Next();
    EXPECT_TRUE(line.ok());
    return line.ok() ? line->value_or("END") : line.error().message();
  }

  int pipe_[2] = {-1, -1};
  InterruptSignal interrupt_ = std::move(InterruptSignal::Block()).value();
};

TEST_F(LineReaderTest, CutsLinesHoweverTheyArrive) {
  LineReader lines(pipe_[0], interrupt_);
  std::thread writer([&] {
    for (char c : std::string("one\r\n\ntwo\nlast")) {
      Write({&c, 1});
      std::this_thread::yield();
    }
    CloseInput();
  });
  EXPECT_EQ(Line(lines), "one");
  EXPECT_EQ(Line(lines), "");
  EXPECT_EQ(Line(lines), "two");
  EXPECT_EQ(Line(lines), "last");
  EXPECT_EQ(Line(lines), "END");
  EXPECT_EQ(Line(lines), "END");
  writer.join();
}

TEST_F(LineReaderTest, AnInterruptDropsWhatWasTypedAndReadingGoesOn) {
  LineReader lines(pipe_[0], interrupt_);
  Write("half a li");
  std::thread typist([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    kill(getpid(), SIGINT);
  });
  const auto interrupted = lines.Next();
  typist.join();
  ASSERT_FALSE(interrupted.ok());
  EXPECT_EQ(interrupted.error().code(), ErrorCode::kCancelled);
  Write("whole\n");
  const auto line = lines.Next();
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(**line, "whole");
}

TEST_F(LineReaderTest, AnEndlessLineIsRefused) {
  LineReader lines(pipe_[0], interrupt_);
  std::thread writer([&] {
    const std::string part(1 << 16, 'x');
    for (size_t sent = 0; sent <= LineReader::kMaxLineBytes + part.size(); sent += part.size()) Write(part);
    CloseInput();
  });
  const auto line = lines.Next();
  ASSERT_FALSE(line.ok());
  EXPECT_EQ(line.error().code(), ErrorCode::kInvalidArgument);
  std::string rest(1 << 16, 0);
  while (read(pipe_[0], rest.data(), rest.size()) > 0) {
  }
  writer.join();
}

TEST(InterruptSignal, ReportsOnceAndHandsTheSignalBack) {
  {
    InterruptSignal interrupt = std::move(InterruptSignal::Block()).value();
    EXPECT_FALSE(interrupt.Take());
    kill(getpid(), SIGINT);
    EXPECT_TRUE(interrupt.Take());
    EXPECT_FALSE(interrupt.Take());
    kill(getpid(), SIGINT);  // pending when it ends: must not end the process
  }
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_FALSE(sigismember(&blocked, SIGINT));
}

}  // namespace
}  // namespace millrace::app
