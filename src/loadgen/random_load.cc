#include "loadgen/random_load.h"

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include "loadgen/arrivals.h"
#include "loadgen/run_loop.h"

namespace millrace::loadgen {

namespace asio = boost::asio;

namespace {

constexpr double kMaxWaitSeconds = 1e9;  // a clock counts no further than some 9e9

class RandomLoad {
 public:
  RandomLoad(LoadSession& session, const RandomLoadOptions& options, RandomLoadResult& result)
      : session_(session), options_(options), result_(result) {}

  asio::awaitable<void> Run() {
    const auto executor = co_await asio::this_coro::executor;
    Gate gate(executor, options_.max_concurrency);
    TaskGroup tasks(executor);
    Arrivals arrivals(options_.request_rate, options_.arrival_seed);
    const TimePoint begin = Clock::now();
    const bool open_loop = !std::isinf(options_.request_rate);
    for (int64_t i = 0; i < options_.num_prompts; ++i) {
      const TimePoint arrival =
          begin + std::chrono::duration_cast<Clock::duration>(
                      std::chrono::duration<double>(std::min(arrivals.Next(), kMaxWaitSeconds)));
      if (open_loop) co_await SleepUntil(arrival);
      // In a closed loop the texts are made one by one as places get free.
      if (!open_loop) co_await gate.Enter();
      tasks.Spawn(AskOne(gate, arrival, open_loop));
    }
    co_await tasks.Join();
  }

 private:
  int64_t Length(int64_t tokens) {
    const auto spread =
        static_cast<int64_t>(std::llround(options_.range_ratio * static_cast<double>(tokens)));
    if (spread <= 0) return tokens;
    return std::max<int64_t>(
        1,
        tokens - spread + static_cast<int64_t>(session_.text.Below(static_cast<uint64_t>(2 * spread + 1))));
  }

  asio::awaitable<void> AskOne(Gate gate, TimePoint arrival, bool enter) {
    if (enter) co_await gate.Enter();
    ChatRequest request;
    request.messages = {Message("user", session_.text.Prompt(Length(options_.input_tokens)))};
    request.max_tokens = Length(options_.output_tokens);
    if (enter) result_.late_s.Add(Seconds(Clock::now() - arrival));
    const RequestRecord record = co_await session_.client.Ask(request);
    result_.summary.Add(record);
    gate.Leave();
  }

  LoadSession& session_;
  const RandomLoadOptions& options_;
  RandomLoadResult& result_;
};

}  // namespace

RandomLoadResult RunRandomLoad(LoadSession& session, const RandomLoadOptions& options) {
  RandomLoadResult result;
  RandomLoad load(session, options, result);
  const TimePoint begin = Clock::now();
  result.interrupted = RunLoop([&] { return load.Run(); }) == LoopEnd::kInterrupted;
  result.duration_s = Seconds(Clock::now() - begin);
  return result;
}

}  // namespace millrace::loadgen
