#include "loadgen/soak.h"

#include <boost/asio/this_coro.hpp>
#include <boost/json.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <thread>
#include <utility>

#include "loadgen/agent_history.h"
#include "loadgen/run_loop.h"

namespace millrace::loadgen {

namespace asio = boost::asio;
namespace json = boost::json;

namespace {

constexpr size_t kMaxExamples = 8;
constexpr size_t kMaxKept = 32;  // prompts asked again when the server is idle
constexpr uint64_t kMaxSteps = 4;
constexpr uint64_t kMaxSubagents = 3;
constexpr uint64_t kMaxLeaveMs = 200;
constexpr size_t kExampleBytes = 48;
constexpr double kFirstPauseSeconds = 0.1;  // of an agent whose request failed; doubled at each further one
constexpr double kMaxPauseSeconds = 10;
constexpr std::array<std::string_view, 8> kCities = {"Oslo", "Paris",  "Rome",   "Cairo",
                                                     "Lima", "Madrid", "Vienna", "Dublin"};

Clock::duration ToDuration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class Soak {
 public:
  Soak(LoadSession& session, const SoakOptions& options, SoakResult& result)
      : session_(session),
        text_(session.text),
        options_(options),
        result_(result),
        compare_(session.client.options().temperature == 0),
        end_(Clock::now() + ToDuration(options.duration_s)) {}

  asio::awaitable<void> Run() {
    TaskGroup sessions(co_await asio::this_coro::executor);
    system_ = text_.Prompt(options_.system_tokens);
    for (int i = 0; i < options_.sessions; ++i) sessions.Spawn(Work());
    co_await sessions.Join();
    for (const Kept& kept : kept_) {
      if (!result_.unreachable.empty()) break;
      const RequestRecord record = co_await Ask(kept.request);
      result_.summary.Add(record);
      if (record.ok()) Compare(kept.transcript, record.answer.Transcript(), "when idle");
    }
  }

 private:
  struct Kept {
    ChatRequest request;
    std::string transcript;
  };
  // How the next prompt of a session comes out of the last one.
  struct Trail {
    std::optional<int64_t> previous_prompt_tokens;
    std::string change = "extended";
  };

  asio::awaitable<void> Work() {
    AgentHistory history(system_);
    Trail trail;
    double pause_s = kFirstPauseSeconds;
    while (Clock::now() < end_) {
      ++result_.tasks;
      history.AddUser(Task());
      if (!co_await Steps(history, trail)) {
        history = AgentHistory(system_);
        trail = Trail();
        co_await SleepUntil(std::min(end_, Clock::now() + ToDuration(pause_s)));
        pause_s = std::min(2 * pause_s, kMaxPauseSeconds);
        continue;
      }
      pause_s = kFirstPauseSeconds;
      if (Clock::now() < end_ && text_.Chance(options_.subagent_rate)) co_await Subagents();
    }
  }

  std::string Task() {
    const std::string_view city = kCities[text_.Below(kCities.size())];
    return fmt::format("{}{} What is the weather in {}?", text_.Nonce(), text_.Tokens(options_.input_tokens),
                       city);
  }

  // Answers and tool outputs in turn; false when a request failed.
  asio::awaitable<bool> Steps(AgentHistory& history, Trail& trail) {
    const uint64_t n_steps = 1 + text_.Below(kMaxSteps);
    for (uint64_t step = 0; step < n_steps && Clock::now() < end_; ++step) {
      if (step > 0) {
        ++result_.tool_outputs;
        history.AddToolOutputs([&] { return text_.Tokens(options_.tool_tokens); });
      }
      if (text_.Chance(options_.reminder_rate)) {
        history.Remind(text_.Nonce() + "Keep answers short.");
        trail.change = "reminder moved";
      }
      const RequestRecord record = co_await Turn(history, trail);
      if (!record.ok()) co_return false;
      history.AddAnswer(record.answer);
      if (!record.usage || record.usage->prompt_tokens < options_.compact_at_tokens) continue;
      ++result_.compactions;
      history.Compact(text_.Tokens(options_.input_tokens));
      trail = Trail();
    }
    co_return true;
  }

  // Every request goes through here. Gives up on a server that none has reached for a while.
  asio::awaitable<RequestRecord> Ask(const ChatRequest& request) {
    RequestRecord record = co_await session_.client.Ask(request);
    if (!record.failure || record.failure->kind != FailureKind::kConnect) {
      // One that left before it was connected says nothing.
      if (!record.left) alone_since_.reset();
      co_return record;
    }
    if (!alone_since_) alone_since_ = record.sent;
    const double alone_s = Seconds(Clock::now() - *alone_since_);
    if (alone_s >= options_.give_up_s && result_.unreachable.empty()) {
      result_.unreachable =
          fmt::format("no connection in {:.0f} s, the soak ended early: {}", alone_s, record.failure->detail);
      end_ = Clock::now();
    }
    co_return record;
  }

  ChatRequest RequestFor(const AgentHistory& history) const {
    ChatRequest request;
    request.messages = history.Messages();
    if (options_.tools) request.tools = AgentTools();
    request.max_tokens = options_.output_tokens;
    return request;
  }

  // One answer, with all that clients do around it.
  asio::awaitable<RequestRecord> Turn(AgentHistory& history, Trail& trail) {
    ChatRequest request = RequestFor(history);
    std::optional<RequestRecord> cut;
    if (text_.Chance(options_.disconnect_rate)) cut = co_await AskAndLeave(request);
    RequestRecord record = co_await Ask(request);
    Note(record, trail);
    if (!record.ok()) co_return record;
    if (cut) ComparePrefix(cut->answer, record.answer);
    if (text_.Chance(options_.repeat_rate)) co_await Repeat(request, record.answer);
    if (kept_.size() < kMaxKept) kept_.push_back({request, record.answer.Transcript()});
    if (text_.Chance(options_.edit_rate)) {
      history.ShortenLast(kExampleBytes);
      trail.change = "edited near the end";
      request = RequestFor(history);
      record = co_await Ask(request);
      Note(record, trail);
    }
    co_return record;
  }

  asio::awaitable<RequestRecord> AskAndLeave(const ChatRequest& request) {
    ChatRequest leaving = request;
    if (text_.Chance(0.5)) {
      leaving.leave_after = std::chrono::milliseconds(1 + text_.Below(kMaxLeaveMs));
    } else {
      const auto n_events = static_cast<uint64_t>(std::max<int64_t>(1, options_.output_tokens));
      leaving.leave_after_events = static_cast<int>(1 + text_.Below(n_events));
    }
    RequestRecord record = co_await Ask(leaving);
    result_.summary.Add(record);
    co_return record;
  }

  asio::awaitable<void> Repeat(const ChatRequest& request, const ChatAnswer& first) {
    const RequestRecord record = co_await Ask(request);
    result_.summary.Add(record);
    if (!record.ok()) co_return;
    if (record.usage) result_.reuse["repeated"].Add(*record.usage, record.usage->prompt_tokens);
    Compare(first.Transcript(), record.answer.Transcript(), "repeated at once");
  }

  // Sub-agents share the system prompt and work side by side; the agent waits for them.
  asio::awaitable<void> Subagents() {
    TaskGroup group(co_await asio::this_coro::executor);
    const uint64_t n_agents = 1 + text_.Below(kMaxSubagents);
    for (uint64_t i = 0; i < n_agents; ++i) group.Spawn(Subagent());
    co_await group.Join();
  }

  asio::awaitable<void> Subagent() {
    ++result_.subagents;
    AgentHistory history(system_);
    Trail trail;
    history.AddUser(Task());
    co_await Steps(history, trail);
  }

  void Note(const RequestRecord& record, Trail& trail) {
    result_.summary.Add(record);
    if (!record.ok() || !record.usage) return;
    const std::string change = trail.previous_prompt_tokens ? trail.change : "begun";
    result_.reuse[change].Add(*record.usage, trail.previous_prompt_tokens);
    trail.previous_prompt_tokens = record.usage->prompt_tokens;
    trail.change = "extended";
  }

  void Compare(std::string_view first, std::string_view second, std::string_view when) {
    if (!compare_) return;
    ++result_.compared;
    if (first == second) return;
    ++result_.mismatches;
    if (result_.examples.size() >= kMaxExamples) return;
    const auto at = static_cast<size_t>(std::ranges::mismatch(first, second).in1 - first.begin());
    const size_t from = at > kExampleBytes / 2 ? at - kExampleBytes / 2 : 0;
    result_.examples.push_back({std::string(when), Printable(first.substr(from, kExampleBytes)),
                                Printable(second.substr(from, kExampleBytes))});
  }

  // What came before the client left is how the whole answer begins.
  void ComparePrefix(const ChatAnswer& cut, const ChatAnswer& whole) {
    const std::string_view content(whole.content), reasoning(whole.reasoning);
    Compare(cut.reasoning, reasoning.substr(0, cut.reasoning.size()), "after a disconnect");
    Compare(cut.content, content.substr(0, cut.content.size()), "after a disconnect");
  }

  LoadSession& session_;
  TextMaker& text_;
  const SoakOptions& options_;
  SoakResult& result_;
  bool compare_;
  TimePoint end_;                         // of what agents begin
  std::optional<TimePoint> alone_since_;  // since when no request has reached the server
  std::string system_;
  std::vector<Kept> kept_;
};

bool IsIdle(const ServerLoad& load) {
  return load.running.value_or(0) == 0 && load.waiting.value_or(0) == 0;
}

}  // namespace

std::vector<std::string> SoakResult::Faults() const {
  std::vector<std::string> faults;
  if (!unreachable.empty()) faults.push_back(unreachable);
  if (mismatches > 0) {
    faults.push_back(fmt::format("{} of {} repeated prompts were answered otherwise at temperature 0",
                                 mismatches, compared));
  }
  if (summary.failed() > 0)
    faults.push_back(fmt::format("{} of {} requests failed", summary.failed(), summary.requests));
  if (summary.succeeded == 0) faults.emplace_back("no request succeeded");
  if (before && !after) faults.emplace_back("/metrics was there at the begin and is gone at the end");
  if (after && !IsIdle(*after)) {
    faults.push_back(fmt::format("the server still holds {:.0f} running and {:.0f} waiting requests",
                                 after->running.value_or(0), after->waiting.value_or(0)));
  }
  return faults;
}

SoakResult RunSoak(LoadSession& session, const SoakOptions& options) {
  SoakResult result;
  result.before = AskServerLoad(session.client.http());
  Soak soak(session, options, result);
  const TimePoint begin = Clock::now();
  result.interrupted = RunLoop([&] { return soak.Run(); }) == LoopEnd::kInterrupted;
  result.duration_s = Seconds(Clock::now() - begin);
  const TimePoint give_up = Clock::now() + ToDuration(options.settle_s);
  result.after = AskServerLoad(session.client.http());
  while (result.after && !IsIdle(*result.after) && Clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    result.after = AskServerLoad(session.client.http());
  }
  return result;
}

}  // namespace millrace::loadgen
