#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <functional>
#include <memory>

#include "base/result.h"
#include "loadgen/http_client.h"

// The few pieces that coroutines of one load run share. All on the thread of RunLoop.
namespace millrace::loadgen {

enum class LoopEnd : uint8_t { kDone, kInterrupted };

// Runs the coroutine that `main` makes, and all that it starts, on this thread, until it returns or SIGINT
// comes; then everything still suspended is destroyed. What coroutines refer to must outlive the call. An
// exception of `main` leaves through it.
LoopEnd RunLoop(const std::function<boost::asio::awaitable<void>()>& main);

boost::asio::awaitable<void> SleepUntil(TimePoint time);

// Coroutines that are waited for together.
class TaskGroup {
 public:
  explicit TaskGroup(const boost::asio::any_io_executor& executor);
  void Spawn(boost::asio::awaitable<void> task);
  // Returns when all have ended; throws what the first of them threw.
  boost::asio::awaitable<void> Join();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Lets so many in at once, in order of arrival.
class Gate {
 public:
  // No limit when `places` is 0.
  Gate(const boost::asio::any_io_executor& executor, int places);
  boost::asio::awaitable<void> Enter();
  void Leave();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace::loadgen
