#include "loadgen/conversations.h"

#include <boost/asio/this_coro.hpp>
#include <boost/json.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include "loadgen/run_loop.h"

namespace millrace::loadgen {

namespace asio = boost::asio;
namespace json = boost::json;

void ReuseMeter::Add(const Usage& usage, std::optional<int64_t> previous_prompt_tokens) {
  if (!usage.cached_tokens) return;
  if (!previous_prompt_tokens) {
    first_turn_cached_.Add(static_cast<double>(*usage.cached_tokens));
    return;
  }
  ++later_turns_;
  cached_ += *usage.cached_tokens;
  previous_ += *previous_prompt_tokens;
  if (*previous_prompt_tokens > 0) {
    reuse_by_turn_.Add(static_cast<double>(*usage.cached_tokens) /
                       static_cast<double>(*previous_prompt_tokens));
  }
  recomputed_tokens_.Add(static_cast<double>(
      std::max<int64_t>(0, std::min(*previous_prompt_tokens, usage.prompt_tokens) - *usage.cached_tokens)));
}

double ReuseMeter::reuse() const {
  return previous_ == 0 ? 0 : static_cast<double>(cached_) / static_cast<double>(previous_);
}

namespace {

class Conversations {
 public:
  Conversations(LoadSession& session, const ConversationsOptions& options, ConversationsResult& result)
      : session_(session), options_(options), result_(result) {}

  asio::awaitable<void> Run() {
    const auto executor = co_await asio::this_coro::executor;
    Gate gate(executor, options_.max_concurrency);
    TaskGroup tasks(executor);
    const std::string system = session_.text.Prompt(options_.system_tokens);
    for (int i = 0; i < options_.conversations; ++i) tasks.Spawn(Converse(gate, system));
    co_await tasks.Join();
  }

 private:
  asio::awaitable<void> Converse(Gate gate, std::string system) {
    json::array messages{Message("system", system)};
    std::optional<int64_t> previous;
    for (int turn = 0; turn < options_.turns; ++turn) {
      if (turn > 0 && options_.think_s > 0) {
        co_await SleepUntil(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                               std::chrono::duration<double>(options_.think_s)));
      }
      co_await gate.Enter();
      messages.push_back(
          Message("user", session_.text.Nonce() + session_.text.Tokens(options_.input_tokens)));
      ChatRequest request;
      request.messages = messages;
      request.max_tokens = options_.output_tokens;
      const RequestRecord record = co_await session_.client.Ask(request);
      gate.Leave();
      result_.summary.Add(record);
      if (!record.ok()) {
        ++result_.broken;
        co_return;
      }
      if (record.usage) {
        result_.reuse.Add(*record.usage, previous);
        previous = record.usage->prompt_tokens;
      }
      messages.push_back(AssistantMessage(record.answer));
    }
  }

  LoadSession& session_;
  const ConversationsOptions& options_;
  ConversationsResult& result_;
};

}  // namespace

ConversationsResult RunConversations(LoadSession& session, const ConversationsOptions& options) {
  ConversationsResult result;
  Conversations conversations(session, options, result);
  const TimePoint begin = Clock::now();
  result.interrupted = RunLoop([&] { return conversations.Run(); }) == LoopEnd::kInterrupted;
  result.duration_s = Seconds(Clock::now() - begin);
  return result;
}

}  // namespace millrace::loadgen
