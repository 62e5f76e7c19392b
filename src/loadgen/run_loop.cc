#include "loadgen/run_loop.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <csignal>
#include <deque>
#include <exception>
#include <utility>

namespace millrace::loadgen {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr auto kTuple = asio::experimental::as_tuple(asio::use_awaitable);

}  // namespace

LoopEnd RunLoop(const std::function<asio::awaitable<void>()>& main) {
  LoopEnd end = LoopEnd::kDone;
  std::exception_ptr failure;
  {
    asio::io_context context(1);
    asio::signal_set signals(context, SIGINT);
    signals.async_wait([&](const error_code& error, int) {
      if (error) return;
      end = LoopEnd::kInterrupted;
      context.stop();
    });
    asio::co_spawn(context, main(), [&](std::exception_ptr thrown) {
      failure = thrown;
      context.stop();
    });
    context.run();
  }
  if (failure) std::rethrow_exception(failure);
  return end;
}

asio::awaitable<void> SleepUntil(TimePoint time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(kTuple);
}

struct TaskGroup::State {
  explicit State(const asio::any_io_executor& executor) : done(executor, TimePoint::max()) {}
  asio::steady_timer done;
  int running = 0;
  std::exception_ptr failure;
};

TaskGroup::TaskGroup(const asio::any_io_executor& executor) : state_(std::make_shared<State>(executor)) {}

void TaskGroup::Spawn(asio::awaitable<void> task) {
  ++state_->running;
  asio::co_spawn(state_->done.get_executor(), std::move(task), [state = state_](std::exception_ptr thrown) {
    --state->running;
    if (thrown && !state->failure) state->failure = thrown;
    if (state->running == 0 || state->failure) state->done.cancel();
  });
}

asio::awaitable<void> TaskGroup::Join() {
  const std::shared_ptr<State> state = state_;
  while (state->running > 0 && !state->failure) co_await state->done.async_wait(kTuple);
  if (state->failure) std::rethrow_exception(state->failure);
}

struct Gate::State {
  asio::any_io_executor executor;
  bool limited = false;
  int free = 0;
  std::deque<std::shared_ptr<asio::steady_timer>> waiting;
};

Gate::Gate(const asio::any_io_executor& executor, int places)
    : state_(std::make_shared<State>(State{executor, places > 0, places, {}})) {}

asio::awaitable<void> Gate::Enter() {
  const std::shared_ptr<State> state = state_;
  if (!state->limited) co_return;
  if (state->free > 0) {
    --state->free;
    co_return;
  }
  const auto turn = std::make_shared<asio::steady_timer>(state->executor, TimePoint::max());
  state->waiting.push_back(turn);
  co_await turn->async_wait(kTuple);  // ended by Leave, which hands its place over
}

void Gate::Leave() {
  if (!state_->limited) return;
  if (state_->waiting.empty()) {
    ++state_->free;
    return;
  }
  state_->waiting.front()->cancel();
  state_->waiting.pop_front();
}

}  // namespace millrace::loadgen
