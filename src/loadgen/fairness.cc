#include "loadgen/fairness.h"

#include <boost/asio/this_coro.hpp>
#include <boost/json.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loadgen/run_loop.h"

namespace millrace::loadgen {

namespace asio = boost::asio;

StreamShare ShareBetween(std::span<const TimePoint> times, TimePoint begin, TimePoint end,
                         double tokens_per_event) {
  StreamShare share;
  int64_t n_events = 0;
  TimePoint last = begin;
  for (const TimePoint time : times) {
    if (time < begin) continue;
    if (time > end) break;
    ++n_events;
    share.longest_gap_s = std::max(share.longest_gap_s, Seconds(time - last));
    last = time;
  }
  share.longest_gap_s = std::max(share.longest_gap_s, Seconds(end - last));
  share.tokens_per_s = static_cast<double>(n_events) * tokens_per_event / Seconds(end - begin);
  return share;
}

std::optional<double> FairnessResult::SlowestKept() const {
  if (streams.empty() || solo_tok_s <= 0 || !no_rates.empty()) return std::nullopt;
  const auto slowest = std::ranges::min_element(streams, {}, &StreamFairness::during_tok_s);
  return slowest->during_tok_s / solo_tok_s;
}

namespace {

constexpr std::chrono::milliseconds kPoll{2};
constexpr double kLeastTextShare = 0.8;  // pieces of text over tokens, so that the ones count the others
constexpr int kMaxEmptyAnswers = 8;      // of a stream in a row
constexpr double kFewTokens = 16;        // too few for a share of them
constexpr int64_t kSoloAnswers = 4;      // their length in solo_tokens, so that bursts do not fill them

class Fairness {
 public:
  Fairness(LoadSession& session, const FairnessOptions& options, FairnessResult& result)
      : session_(session), options_(options), result_(result) {
    streams_.resize(static_cast<size_t>(options.decode_streams));
  }

  asio::awaitable<void> Run() {
    TaskGroup prompts(co_await asio::this_coro::executor);
    TaskGroup streams(co_await asio::this_coro::executor);
    if (options_.decode_streams > 0) {
      co_await MeasureSolo();
      if (error_) co_return;
    }
    for (Stream& stream : streams_) streams.Spawn(Decode(stream));
    const TimePoint joined = co_await WaitForAll(1);
    NoteStreamsThatWaited();
    if (options_.decode_streams > 0) co_await SleepUntil(joined + SoloTime());
    const TimePoint warm = co_await WaitForAll(options_.solo_tokens);
    if (error_) co_return;
    reading_begin_ = Clock::now();
    for (int i = 0; i < options_.long_prompts; ++i)
      prompts.Spawn(Read(options_.long_input_tokens, /*is_long=*/true));
    prompts.Spawn(Read(options_.short_input_tokens, /*is_long=*/false));
    co_await prompts.Join();
    // Returning ends the streams' connections.
    Report(joined, warm);
  }

  const std::optional<Error>& error() const { return error_; }

  // Refuses rates when much of what was generated was no text. `generated`: tokens by the server's own count,
  // of the whole run; without it there are only the answers that ended, whose usage tells their tokens.
  void JudgeTexts(std::optional<double> generated) {
    auto n_texts = static_cast<double>(n_other_texts_);
    for (const Stream& stream : streams_) n_texts += static_cast<double>(stream.times.size());
    if (generated) RefuseRates(n_texts, *generated, "the server counts");
    RefuseRates(static_cast<double>(n_ended_texts_), static_cast<double>(n_ended_tokens_),
                "the usage of answers counts");
  }

 private:
  struct Stream {
    std::vector<TimePoint> times;  // of all its answers
    std::vector<TimePoint> begins;
  };

  ChatRequest DecodeRequest(int64_t max_tokens) {
    ChatRequest request;
    request.messages = {Message("user", session_.text.Prompt(options_.decode_input_tokens))};
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    request.temperature = options_.decode_temperature;
    return request;
  }

  void RefuseRates(double n_texts, double n_tokens, std::string_view who_counts) {
    if (!result_.no_rates.empty() || n_tokens < kFewTokens || n_texts >= kLeastTextShare * n_tokens) return;
    result_.no_rates = fmt::format(
        "{} {:.0f} tokens where {:.0f} pieces of text came, {:.0f} %: the model generates tokens that are no "
        "text, the server bundles them, or others use it; texts do not tell rates",
        who_counts, n_tokens, n_texts, 100 * n_texts / n_tokens);
  }

  // Of an answer of a stream, or of the one alone.
  void CountEnded(const RequestRecord& record) {
    if (!record.ok()) return;
    ends_.push_back(record.ended);
    if (!record.usage) return;
    n_ended_texts_ += static_cast<int64_t>(record.text_times.size());
    n_ended_tokens_ += record.usage->completion_tokens;
  }

  std::string ServesTooFew(std::string_view who) const {
    return fmt::format(
        "{} got the first text only after another answer had ended; a server with places for fewer than {} "
        "sequences (streams, long prompts and the short one; millrace: --max-num-seqs {}) makes them wait "
        "for "
        "one, and then that wait is what was measured",
        who, Sequences(), Sequences());
  }
  int Sequences() const { return options_.decode_streams + options_.long_prompts + 1; }

  void NoteStreamsThatWaited() {
    const auto waited = [&](const Stream& stream) {
      return !stream.times.empty() && std::ranges::any_of(ends_, [&](TimePoint end) {
        return stream.begins.front() < end && end < stream.times.front();
      });
    };
    if (const auto n = std::ranges::count_if(streams_, waited); n > 0)
      result_.notes.push_back(ServesTooFew(fmt::format("{} of {} streams", n, streams_.size())));
  }

  Clock::duration SoloTime() const {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.solo_s));
  }

  // Asks until enough tokens have been timed: an answer may end early all the same.
  asio::awaitable<void> MeasureSolo() {
    double n_timed = 0, decode_s = 0, n_events = 0, n_tokens = 0;
    const auto wanted = static_cast<double>(options_.solo_tokens);
    const int64_t n_asked = std::min(options_.decode_output_tokens, kSoloAnswers * options_.solo_tokens);
    for (int n_empty = 0; n_timed < wanted || decode_s < options_.solo_s;) {
      const ChatRequest request = DecodeRequest(n_asked);
      const RequestRecord record = co_await session_.client.Ask(request);
      n_other_texts_ += static_cast<int64_t>(record.text_times.size());
      CountEnded(record);
      const bool is_burst =
          record.text_times.empty() || record.text_times.back() == record.text_times.front();
      if (!record.ok() || (is_burst && ++n_empty == kMaxEmptyAnswers)) {
        const std::string why = record.failure
                                    ? fmt::format("{}: {}", record.failure->Name(), record.failure->detail)
                                    : "its answers come in one piece";
        error_ =
            Error(ErrorCode::kIo, fmt::format("the rate of one stream alone cannot be measured: {}", why));
        co_return;
      }
      if (is_burst) continue;
      n_empty = 0;
      const auto events = static_cast<double>(record.text_times.size());
      n_events += events;
      n_tokens += record.usage ? static_cast<double>(record.usage->completion_tokens) : events;
      // What came in the same read as the first text was generated before the clock started.
      n_timed += static_cast<double>(record.text_times.end() -
                                     std::ranges::upper_bound(record.text_times, record.text_times.front()));
      decode_s += Seconds(record.text_times.back() - record.text_times.front());
      for (size_t i = 1; i < record.text_times.size(); ++i)
        result_.solo_gap_s.Add(Seconds(record.text_times[i] - record.text_times[i - 1]));
    }
    tokens_per_event_ = n_tokens / n_events;
    result_.solo_tok_s = decode_s > 0 ? n_timed * tokens_per_event_ / decode_s : 0;
  }

  // Until the run ends: its frame is destroyed then.
  asio::awaitable<void> Decode(Stream& stream) {
    int n_empty = 0;
    while (!error_) {
      ChatRequest request = DecodeRequest(options_.decode_output_tokens);
      request.on_text = [&stream](TimePoint time) { stream.times.push_back(time); };
      stream.begins.push_back(Clock::now());
      const RequestRecord record = co_await session_.client.Ask(request);
      result_.summary.Add(record);
      CountEnded(record);
      n_empty = record.text_times.empty() ? n_empty + 1 : 0;
      if (n_empty < kMaxEmptyAnswers) continue;
      const std::string why =
          record.failure ? fmt::format("{}: {}", record.failure->Name(), record.failure->detail) : "no text";
      error_ = Error(ErrorCode::kIo, fmt::format("a decoding stream gets nothing: {}", why));
    }
  }

  // Returns when every stream has given so many texts (or one has failed): that instant.
  asio::awaitable<TimePoint> WaitForAll(int64_t n_texts) {
    const auto is_short = [&](const Stream& stream) {
      return static_cast<int64_t>(stream.times.size()) < n_texts;
    };
    while (!error_ && std::ranges::any_of(streams_, is_short)) co_await SleepUntil(Clock::now() + kPoll);
    co_return Clock::now();
  }

  asio::awaitable<void> Read(int64_t n_tokens, bool is_long) {
    ChatRequest request;
    request.messages = {Message("user", session_.text.Prompt(n_tokens))};
    request.max_tokens = options_.output_tokens;
    request.ignore_eos = true;
    const RequestRecord record = co_await session_.client.Ask(request);
    result_.summary.Add(record);
    n_other_texts_ += static_cast<int64_t>(record.text_times.size());
    if (is_long && record.ok()) ends_.push_back(record.ended);
    if (!record.ok() || record.text_times.empty()) co_return;
    const double ttft_s = Seconds(record.text_times.front() - record.sent);
    if (!is_long) {
      result_.short_ttft_s = ttft_s;
      const auto ended_before = [&](TimePoint end) {
        return record.sent < end && end < record.text_times.front();
      };
      if (std::ranges::any_of(ends_, ended_before)) result_.notes.push_back(ServesTooFew("the short prompt"));
      co_return;
    }
    result_.long_ttft_s.Add(ttft_s);
    reading_end_ = std::max(reading_end_, record.text_times.front());
    if (record.usage)
      result_.long_prompt_tokens += record.usage->prompt_tokens - record.usage->cached_tokens.value_or(0);
  }

  void Report(TimePoint joined, TimePoint warm) {
    if (reading_end_ <= reading_begin_) {
      result_.notes.emplace_back("no long prompt was answered: nothing was measured beside them");
      return;
    }
    result_.reading_s = Seconds(reading_end_ - reading_begin_);
    for (const Stream& stream : streams_) {
      StreamFairness& figures = result_.streams.emplace_back();
      if (warm > joined)
        figures.before_tok_s = ShareBetween(stream.times, joined, warm, tokens_per_event_).tokens_per_s;
      const StreamShare during = ShareBetween(stream.times, reading_begin_, reading_end_, tokens_per_event_);
      figures.during_tok_s = during.tokens_per_s;
      figures.longest_gap_s = during.longest_gap_s;
      figures.answers = 1 + static_cast<int>(std::ranges::count_if(stream.begins, [&](TimePoint begin) {
                          return begin > reading_begin_ && begin < reading_end_;
                        }));
      if (figures.answers > 1) ++n_restarted_;
    }
    if (n_restarted_ > 0) {
      result_.notes.push_back(
          fmt::format("{} streams ended an answer and asked again while prompts were read: the wait for the "
                      "next first token counts as a gap; raise --decode-output-len",
                      n_restarted_));
    }
  }

  LoadSession& session_;
  const FairnessOptions& options_;
  FairnessResult& result_;
  std::vector<Stream> streams_;
  double tokens_per_event_ = 1;
  int n_restarted_ = 0;
  std::vector<TimePoint> ends_;                     // of answers of streams and long prompts
  int64_t n_other_texts_ = 0;                       // of answers that are no stream's
  int64_t n_ended_texts_ = 0, n_ended_tokens_ = 0;  // of whole answers that tell their usage
  TimePoint reading_begin_{}, reading_end_{};
  std::optional<Error> error_;
};

}  // namespace

Result<FairnessResult> RunFairness(LoadSession& session, const FairnessOptions& options) {
  FairnessResult result;
  Fairness fairness(session, options, result);
  const std::optional<ServerLoad> before = AskServerLoad(session.client.http());
  result.interrupted = RunLoop([&] { return fairness.Run(); }) == LoopEnd::kInterrupted;
  if (fairness.error()) return *fairness.error();
  std::optional<double> generated;
  if (const std::optional<ServerLoad> after = AskServerLoad(session.client.http());
      before && after && before->generated && after->generated)
    generated = *after->generated - *before->generated;
  fairness.JudgeTexts(generated);
  return result;
}

}  // namespace millrace::loadgen
