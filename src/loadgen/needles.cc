#include "loadgen/needles.h"

#include <boost/asio/this_coro.hpp>
#include <boost/json.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "loadgen/run_loop.h"

namespace millrace::loadgen {

namespace asio = boost::asio;

namespace {

// The wording and the names that models/mini was trained on; any larger model understands them too.
constexpr std::array<std::string_view, 16> kNames = {"Delta",  "Coral",  "Onyx",  "Willow", "Nova",  "Canyon",
                                                     "Orion",  "Harbor", "Comet", "Copper", "Raven", "Falcon",
                                                     "Summit", "Maple",  "Eagle", "Vertex"};
constexpr size_t kCodes = 4;
constexpr int64_t kWordsOfFact = 7;
constexpr int64_t kWordsOfSentence = 9;

}  // namespace

Needle MakeNeedle(TextMaker& text, int64_t n_tokens, double depth) {
  const double words =
      (static_cast<double>(n_tokens) - text.rate().overhead_tokens) / text.rate().tokens_per_word;
  const int64_t n_filler = std::llround(words) - static_cast<int64_t>(kCodes + 1) * kWordsOfFact;
  const int64_t n_sentences = std::max<int64_t>(1, n_filler / kWordsOfSentence);
  std::vector<std::string> sentences = text.Sentences(n_sentences);
  Needle needle;
  const size_t first = text.Below(kNames.size());
  for (size_t i = 0; i < kCodes; ++i) {
    const std::string name(kNames[(first + i * 3) % kNames.size()]);
    const std::string code = fmt::format("{:04}", text.Below(10000));
    const auto at_depth = static_cast<size_t>(depth * static_cast<double>(n_sentences));
    const size_t at = i == 0 ? std::min(at_depth, sentences.size() - 1) : text.Below(sentences.size());
    sentences[at] += fmt::format(" The secret code of {} is {}.", name, code);
    if (i == 0) {
      needle.name = name;
      needle.code = code;
    }
  }
  needle.prompt = fmt::format("{}{} What is the secret code of {}?", text.Nonce(), fmt::join(sentences, " "),
                              needle.name);
  return needle;
}

int NeedlesResult::asked() const {
  return std::accumulate(depths.begin(), depths.end(), 0,
                         [](int sum, const NeedleDepth& depth) { return sum + depth.asked; });
}

int NeedlesResult::found() const {
  return std::accumulate(depths.begin(), depths.end(), 0,
                         [](int sum, const NeedleDepth& depth) { return sum + depth.found; });
}

namespace {

class NeedleHunt {
 public:
  NeedleHunt(LoadSession& session, const NeedlesOptions& options, NeedlesResult& result)
      : session_(session), options_(options), result_(result) {}

  asio::awaitable<void> Run() {
    const auto executor = co_await asio::this_coro::executor;
    Gate gate(executor, options_.max_concurrency);
    TaskGroup tasks(executor);
    for (NeedleDepth& depth : result_.depths) {
      for (int i = 0; i < options_.needles; ++i) {
        co_await gate.Enter();
        tasks.Spawn(AskOne(gate, depth));
      }
    }
    co_await tasks.Join();
  }

 private:
  asio::awaitable<void> AskOne(Gate gate, NeedleDepth& depth) {
    const Needle needle = MakeNeedle(session_.text, options_.input_tokens, depth.depth);
    ChatRequest request;
    request.messages = {Message("user", needle.prompt)};
    request.max_tokens = options_.output_tokens;
    const RequestRecord record = co_await session_.client.Ask(request);
    gate.Leave();
    result_.summary.Add(record);
    ++depth.asked;
    if (record.ok() && record.answer.content.find(needle.code) != std::string::npos) {
      ++depth.found;
    } else if (depth.first_miss.empty()) {
      depth.first_miss =
          record.failure
              ? fmt::format("{}: {}", record.failure->Name(), record.failure->detail)
              : fmt::format("{} of {}: {}", needle.code, needle.name, Printable(record.answer.content));
    }
  }

  LoadSession& session_;
  const NeedlesOptions& options_;
  NeedlesResult& result_;
};

}  // namespace

NeedlesResult RunNeedles(LoadSession& session, const NeedlesOptions& options) {
  NeedlesResult result;
  for (const double depth : options.depths) result.depths.push_back({.depth = depth, .first_miss = {}});
  NeedleHunt hunt(session, options, result);
  const TimePoint begin = Clock::now();
  result.interrupted = RunLoop([&] { return hunt.Run(); }) == LoopEnd::kInterrupted;
  result.duration_s = Seconds(Clock::now() - begin);
  return result;
}

}  // namespace millrace::loadgen
