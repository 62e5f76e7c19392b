#include "api/generation_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "api/answer_needs.h"
#include "api/error_response.h"
#include "base/check.h"
#include "base/seconds.h"
#include "base/units.h"
#include "engine/queue_estimate.h"

namespace millrace::api {
namespace {

static_assert(kMaxTopLogprobs == engine::kMaxLogprobs, "the decoders accept what the engine accepts");

using Clock = std::chrono::steady_clock;

// "stop", "length", "repetition", "timeout", "abort" or "error": vLLM's words for metrics, and two of ours.
std::string_view MetricReason(engine::FinishReason reason) {
  return reason == engine::FinishReason::kCancelled ? "abort" : engine::FinishReasonName(reason);
}

// For the access log.
std::string_view WordFor(const AnswerEnd& end) {
  switch (end.kind) {
    case AnswerEnd::Kind::kStop:
    case AnswerEnd::Kind::kStopString:
      return "stop";
    case AnswerEnd::Kind::kLength:
    case AnswerEnd::Kind::kOutputCap:
    case AnswerEnd::Kind::kContextFull:
      return "length";
    case AnswerEnd::Kind::kToolCalls:
      return "tool_calls";
    case AnswerEnd::Kind::kRepetition:
      return "repetition";
  }
  return "";
}

// Of stop strings and their matchers.
uint64_t StopBytes(const std::vector<std::string>& stop) {
  constexpr uint64_t kPerByte = 2 + sizeof(size_t);
  constexpr uint64_t kPerString = 160;
  uint64_t bytes = 0;
  for (const std::string& text : stop) bytes += kPerString + kPerByte * text.size();
  return bytes;
}

// Until an answer that holds memory may have ended, and what waits in front of the next one: for a
// Retry-After. `tokens`: of an answer, as long as none has ended.
int SecondsUntilAnswersEnd(const engine::EngineStats& stats, int64_t tokens) {
  const int queue = engine::RetryAfterSeconds(stats);
  if (stats.tokens_per_second <= 0) return queue;
  const double each = stats.mean_answer_tokens > 0 ? stats.mean_answer_tokens : static_cast<double>(tokens);
  const double running = std::ceil(stats.running * each / stats.tokens_per_second);
  return static_cast<int>(std::min<double>(queue + running, engine::kMaxRetryAfterSeconds));
}

// Of events, at which a stream does not wait for more before it writes them.
constexpr size_t kLargeWrite = 64 << 10;

struct SequenceEvent {
  size_t choice = 0;
  Clock::time_point at;
  std::variant<engine::TokenEvent, engine::FinishEvent> what;
};

class GenerationJob : public std::enable_shared_from_this<GenerationJob> {
 public:
  GenerationJob(GenerationBackend backend, PreparedGeneration prepared, std::shared_ptr<Exchange> exchange)
      : backend_(backend),
        prepared_(std::move(prepared)),
        exchange_(std::move(exchange)),
        shape_(ShapeOf(prepared_)),
        memory_(backend.answers) {}

  void Start() {
    exchange_->record().model = prepared_.model;
    if (const std::optional<Error> error = NeverFits()) {
      answered_ = true;
      return SendError(Refusal(*error));
    }
    if (const std::optional<ApiError> error = ReserveAnswer()) {
      answered_ = true;
      return SendError(*error);
    }
    if (const std::optional<Error> error = SubmitAll()) {
      CancelAll();
      answered_ = true;
      return SendError(Refusal(*error));
    }
    CountPlaces();
    if (prepared_.stream) BeginStream();
    // Weak: the exchange outlives the job when the sequences are done before the answer is delivered.
    exchange_->SetOnGone([job = weak_from_this()] {
      if (const auto self = job.lock()) self->CancelAll();
    });
  }

  // From the sinks, on the engine's thread.
  void Push(SequenceEvent event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    if (events_.size() == 1) exchange_->Post([self = shared_from_this()] { self->TakeEvents(); });
  }

 private:
  struct Choice {
    Choice(SeqId id_in, const text::Tokenizer& tokenizer, const GenerationOptions& options,
           AnswerEnd::Kind at_limit)
        : id(id_in), generation(tokenizer, options, at_limit) {}

    SeqId id;
    Generation generation;
    ChoiceBuilder answer;  // so far
    FinishedChoice whole;  // once finished
    std::optional<Clock::time_point> last_token;
    // What it takes of the answer's memory, and what of that needs no reservation.
    int64_t bytes = 0;
    int64_t planned_bytes = 0;
    int64_t text_bytes = 0;  // as TextBytes counts
    bool finished = false;
  };

  class Sink final : public engine::TokenSink {
   public:
    Sink(std::shared_ptr<GenerationJob> job, size_t choice) : job_(std::move(job)), choice_(choice) {}
    void OnToken(const engine::TokenEvent& event) override { job_->Push({choice_, Clock::now(), event}); }
    void OnFinish(const engine::FinishEvent& event) override { job_->Push({choice_, Clock::now(), event}); }

   private:
    std::shared_ptr<GenerationJob> job_;
    size_t choice_;
  };

  static AnswerShape ShapeOf(const PreparedGeneration& prepared) {
    AnswerShape shape;
    for (const OutputLimit& limit : prepared.limits) shape.limits.push_back(limit.tokens);
    shape.choices_per_prompt = prepared.choices_per_prompt;
    shape.stream = prepared.stream;
    shape.logprobs = prepared.sampling.logprobs;
    shape.format = prepared.format->memory(prepared.stream);
    if (const auto& parse = prepared.text.parse; parse && parse->tools)
      shape.fixed_bytes = parse->tools->bytes();
    const uint64_t id_bytes = prepared.text.stop_token_ids.size() * sizeof(TokenId);
    shape.fixed_bytes += id_bytes;
    shape.fixed_bytes_per_sequence = StopBytes(prepared.text.stop) + id_bytes;
    return shape;
  }

  // Of the whole answer, reasoning included, before it is asked for: nothing is broken off for want of it.
  std::optional<ApiError> ReserveAnswer() {
    LowerUnnamedLimits();
    const uint64_t bytes = BytesToReserve(shape_);
    const uint64_t most = backend_.answers.most_of_one();
    if (bytes > most) return TooLargeAnswer(bytes);
    if (memory_.Reserve(bytes)) return std::nullopt;
    return ApiError{ApiErrorKind::kQueueFull,
                    fmt::format("The answer may take up to {}, and answers under way have reserved {} of the "
                                "{} set aside for them (--max-answers-size); retry shortly.",
                                HumanBytes(bytes), HumanBytes(backend_.answers.reserved_bytes()),
                                HumanBytes(backend_.answers.shared_bytes())),
                    "", std::nullopt, SecondsUntilAnswersEnd(backend_.engine.stats(), shape_.longest())};
  }

  // What the plan has for every place in the engine, once that has given its places.
  void CountPlaces() {
    const uint64_t places = shape_.sequences() * kAnswerBytesPerSequence;
    const auto bytes = static_cast<int64_t>(places + PlannedBytes(shape_));
    MILLRACE_CHECK(memory_.Change(bytes, bytes), "what the plan has for every place is there");
  }

  // A request that names no limit is not refused for one.
  void LowerUnnamedLimits() {
    constexpr uint64_t kShare = 4;
    const AnswerNeeds needs = NeedsOf(shape_);
    if (needs.bytes_per_token == 0) return;
    const uint64_t share = backend_.answers.shared_bytes() / kShare;
    const uint64_t left = share - std::min(share, needs.fixed_bytes - PlannedBytes(shape_));
    const auto most = std::max<int64_t>(
        1, static_cast<int64_t>(left / (needs.bytes_per_token * std::max<size_t>(1, shape_.sequences()))));
    for (size_t p = 0; p < prepared_.limits.size(); ++p) {
      OutputLimit& limit = prepared_.limits[p];
      if (limit.named || limit.tokens <= most) continue;
      limit = {most, AnswerEnd::Kind::kOutputCap, false};
      shape_.limits[p] = most;
    }
  }

  ApiError TooLargeAnswer(uint64_t bytes) const {
    const size_t sequences = shape_.sequences();
    std::string what = fmt::format("{} sequence{} of up to {} tokens", sequences, sequences == 1 ? "" : "s",
                                   shape_.longest());
    if (shape_.logprobs) what += fmt::format(", with {} alternatives of each", *shape_.logprobs);
    return {ApiErrorKind::kInvalidValue,
            fmt::format("The answer may take up to {} ({}), more than the {} that this server lets one "
                        "request have, half of what it "
                        "has for answers; {}.",
                        HumanBytes(bytes), what, HumanBytes(backend_.answers.most_of_one()),
                        RemediesFor(shape_, prepared_.format->memory(/*stream=*/true), prepared_.fields,
                                    backend_.answers.most_of_one())),
            ""};
  }

  // More than the places that there are, or more prompt than can ever wait.
  std::optional<Error> NeverFits() const {
    const engine::Engine& engine = backend_.engine;
    if (const auto capacity = static_cast<size_t>(engine.capacity()); shape_.sequences() > capacity) {
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("the request asks for {} answers, prompts times n, and this server has room for "
                      "{} at once; lower n",
                      shape_.sequences(), capacity));
    }
    uint64_t tokens = 0;
    for (const std::vector<TokenId>& prompt : prepared_.prompts) tokens += prompt.size();
    if (tokens * sizeof(TokenId) <= engine.prompt_bytes()) return std::nullopt;
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("the request's {} prompts have {} tokens together, and this server has room for {} "
                    "of all that waits; send fewer at once",
                    prepared_.prompts.size(), tokens, engine.prompt_bytes() / sizeof(TokenId)));
  }

  std::optional<Error> SubmitAll() {
    for (size_t p = 0; p < prepared_.prompts.size(); ++p) {
      prompt_tokens_ += std::ssize(prepared_.prompts[p]);
      engine::GenerationRequest request{prepared_.request_id, std::move(prepared_.prompts[p]),
                                        prepared_.sampling};
      request.deadline = prepared_.deadline;
      request.arrival = prepared_.arrival;
      request.sampling.max_tokens = prepared_.limits[p].tokens;
      request.sampling.min_tokens = std::min(request.sampling.min_tokens, request.sampling.max_tokens);
      std::vector<std::shared_ptr<engine::TokenSink>> sinks;
      for (size_t c = 0; c < static_cast<size_t>(prepared_.choices_per_prompt); ++c)
        sinks.push_back(std::make_shared<Sink>(shared_from_this(), choices_.size() + c));
      const auto submitted = backend_.engine.SubmitChoices(std::move(request), sinks);
      if (!submitted.ok()) {
        if (!choices_.empty()) CountRequest();  // they will be counted as ended, too
        return submitted.error();
      }
      for (const SeqId id : *submitted)
        choices_.emplace_back(id, backend_.tokenizer, prepared_.text, prepared_.limits[p].at_limit);
      unfinished_ += submitted->size();
    }
    CountRequest();
    prepared_.prompts.clear();
    // The engine has them, and accounts for them.
    prepared_.sampling.logit_bias = {};
    prepared_.sampling.stop_token_ids = {};
    return std::nullopt;
  }

  void CountRequest() {
    backend_.metrics.OnRequest(choices_.size(),
                               std::ranges::max(prepared_.limits, {}, &OutputLimit::tokens).tokens);
  }

  void BeginStream() {
    // Weak: the exchange outlives the job, and a filler that held the job would hold itself.
    exchange_->BeginStream(StreamHead(), [job = weak_from_this()] {
      const auto self = job.lock();
      return self ? self->prepared_.format->Filler() : std::string();
    });
    std::string begin = prepared_.format->StreamBegin(prompt_tokens_);
    Write(begin);
    EndStreamIfDone();
  }

  HttpResponse StreamHead() {
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = prepared_.headers;
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");
    return head;
  }

  void CancelAll() {
    for (const Choice& choice : choices_)
      if (!choice.finished) backend_.engine.Cancel(choice.id);
  }

  void TakeEvents() {
    std::vector<SequenceEvent> events;
    {
      const std::lock_guard lock(mutex_);
      events.swap(events_);
    }
    std::string stream;
    for (const SequenceEvent& event : events) {
      if (const auto* const token = std::get_if<engine::TokenEvent>(&event.what)) {
        OnToken(event.choice, *token, event.at, stream);
      } else {
        OnFinish(event.choice, std::get<engine::FinishEvent>(event.what), event.at, stream);
      }
      if (stream.size() >= kLargeWrite) Write(stream);
    }
    Write(stream);
    EndStreamIfDone();
  }

  void EndStreamIfDone() {
    if (end_stream_) exchange_->EndStream(*std::exchange(end_stream_, std::nullopt));
  }

  // Empties `stream`. Events that the server has no room for are not left out: the stream ends and says so.
  void Write(std::string& stream) {
    if (stream.empty()) return;
    const size_t bytes = stream.size();
    const bool queued = exchange_->Write(std::exchange(stream, {}));
    if (queued) return;
    const ApiError error{
        ApiErrorKind::kOverloaded,
        fmt::format("{} more of the answer find no room beside other clients' unread answers "
                    "(--max-unread-total); retry shortly.",
                    HumanBytes(bytes)),
        ""};
    if (!answered_) {
      answered_ = true;
      CancelAll();
      Record("abort");
    }
    RecordError(error);
    if (!exchange_->Write(prepared_.format->StreamError(error)))
      (void)exchange_->Write(prepared_.format->ShortStreamError(error));
    end_stream_ = StreamEnd::kFailed;
  }

  void OnToken(size_t index, const engine::TokenEvent& event, Clock::time_point at, std::string& stream) {
    Choice& choice = choices_[index];
    if (answered_ || choice.generation.stopped()) return;  // sampled while our cancellation was under way
    if (choice.last_token) {
      backend_.metrics.OnNextToken(Seconds(at - *choice.last_token));
    } else {
      backend_.metrics.OnFirstToken(Seconds(at - prepared_.arrival));
    }
    if (!first_token_) first_token_ = at;
    choice.last_token = at;
    constexpr int64_t kIdBytes = 2 * sizeof(TokenId);  // with what a vector grows ahead
    TextDelta delta = choice.generation.OnToken(event);
    if (!Hold(choice, kIdBytes + BytesToKeep(choice, delta), kAnswerBytesPerToken)) return BreakOff(stream);
    Deliver(index, std::move(delta), stream);
    if (choice.generation.stopped()) backend_.engine.Cancel(choice.id);
  }

  bool KeepsAnswers() const { return !prepared_.stream || prepared_.recorder; }

  int64_t BytesToKeep(Choice& choice, const TextDelta& delta) const {
    const int64_t copies =
        (KeepsAnswers() ? 1 : 0) + (prepared_.stream && shape_.format.keeps_stream ? 1 : 0);
    if (copies == 0) return 0;
    const auto text = static_cast<int64_t>(TextBytes(delta));
    choice.text_bytes += text;
    return copies * text + static_cast<int64_t>(LogprobBytes(delta, shape_));
  }

  // Nothing changes where false.
  bool Hold(Choice& choice, int64_t bytes, int64_t planned_bytes) {
    if (!memory_.Change(bytes, planned_bytes)) return false;
    choice.bytes += bytes;
    choice.planned_bytes += planned_bytes;
    return true;
  }

  // The choice's slot is another's now, and with it what the plan has for a running sequence.
  bool LetGoOfSlot(Choice& choice) {
    if (!prepared_.stream) return Hold(choice, 0, -choice.planned_bytes);
    // All that it was has been sent.
    choice.generation.DropIds();
    choice.whole = {};
    return Hold(choice, shape_.format.keeps_stream ? 0 : -choice.bytes, -choice.planned_bytes);
  }

  // Nothing of the answer is needed any more; its sequences may take another step to end.
  void GiveUpMemory() {
    for (Choice& choice : choices_) {
      choice.generation.DropIds();
      choice.answer = {};
      choice.whole = {};
    }
    (void)memory_.Take(0);
  }

  void Deliver(size_t index, TextDelta delta, std::string& stream) {
    if (delta.empty()) return;
    if (prepared_.stream) stream += prepared_.format->Delta(index, delta);
    Keep(choices_[index], std::move(delta));
  }

  void Keep(Choice& choice, TextDelta delta) {
    if (!KeepsAnswers()) return;
    if (prepared_.stream) {  // for the record, which has none
      delta.reasoning_tokens.clear();
      delta.content_tokens.clear();
    }
    choice.answer.Append(std::move(delta));
  }

  void OnFinish(size_t index, const engine::FinishEvent& event, Clock::time_point at, std::string& stream) {
    Choice& choice = choices_[index];
    TextDelta rest = choice.generation.OnFinish(event);
    choice.finished = true;
    --unfinished_;
    const engine::FinishReason reason =
        choice.generation.stopped() ? engine::FinishReason::kStop : event.reason;
    backend_.metrics.OnFinished(MetricReason(reason), Seconds(at - prepared_.arrival), event);
    if (answered_) return;
    const bool failed = reason == engine::FinishReason::kCancelled ||
                        reason == engine::FinishReason::kError || reason == engine::FinishReason::kTimeout;
    if (failed) return Fail(event, stream);
    if (!Hold(choice, BytesToKeep(choice, rest), 0)) return BreakOff(stream);
    if (prepared_.stream) {
      stream += prepared_.format->ChoiceEnd(index, rest, choice.generation.end());
      if (stream.size() >= kLargeWrite) Write(stream);
    }
    Keep(choice, std::move(rest));
    if (KeepsAnswers()) choice.whole = choice.answer.Finish(choice.generation.end());
    if (prepared_.recorder) prepared_.recorder->Record(choice.generation, choice.whole);
    if (unfinished_ > 0 && !LetGoOfSlot(choice)) return BreakOff(stream);
    if (unfinished_ == 0 && !answered_) Finish(stream);
  }

  void Finish(std::string& stream) {
    // One answer is written at a time, and the plan has room for that.
    if (!memory_.Change(WritingBytes(), static_cast<int64_t>(backend_.answers.writing_bytes())))
      return BreakOff(stream);
    answered_ = true;
    Record(WordFor(choices_.front().generation.end()));
    if (prepared_.stream) {
      stream += prepared_.format->StreamEnd(Usage());
      end_stream_ = StreamEnd::kWhole;
      GiveUpMemory();
      return;
    }
    SendWhole();
  }

  void SendWhole() {
    std::vector<FinishedChoice> finished;
    for (Choice& choice : choices_) finished.push_back(std::move(choice.whole));
    HttpResponse response;
    response.headers = prepared_.headers;
    response.body = prepared_.format->Whole(finished, Usage());
    // What was set aside for the answer goes on with its text; one for which nothing was finds its room where
    // all that clients have not read does.
    response.body_memory = memory_.Take(response.body.capacity());
    finished.clear();
    exchange_->Send(std::move(response));
  }

  void SendError(const ApiError& error) {
    RecordError(error);
    exchange_->Send(ErrorResponse(error, prepared_.headers, {prepared_.dialect, prepared_.request_id}));
  }

  // One sequence failed or was taken from us (the server is stopping, or the client left): the others go too.
  void Fail(const engine::FinishEvent& event, std::string& stream) {
    FailWith(FailureOf(event), MetricReason(event.reason), stream);
  }

  // The answer has outgrown what was set aside for it, and others have the rest.
  void BreakOff(std::string& stream) {
    FailWith(
        {ApiErrorKind::kOverloaded,
         fmt::format("The answer takes more than was set aside for it, and answers under way fill the {} "
                     "that there are (--max-answers-size); retry shortly.",
                     HumanBytes(backend_.answers.shared_bytes())),
         ""},
        "abort", stream);
  }

  void FailWith(const ApiError& error, std::string_view reason, std::string& stream) {
    answered_ = true;
    CancelAll();
    Record(reason);
    GiveUpMemory();
    if (!prepared_.stream) return SendError(error);
    RecordError(error);
    stream += prepared_.format->StreamError(error);
    end_stream_ = StreamEnd::kFailed;
  }

  // What the engine refused.
  ApiError Refusal(const Error& error) const {
    ApiError refusal = FromEngineError(error);
    if (refusal.kind == ApiErrorKind::kQueueFull)
      refusal.retry_after = engine::RetryAfterSeconds(backend_.engine.stats());
    return refusal;
  }

  ApiError FailureOf(const engine::FinishEvent& event) const {
    if (!event.error)
      return {ApiErrorKind::kDraining, "The server is shutting down and ended the generation.", ""};
    if (event.reason != engine::FinishReason::kTimeout)
      return {ApiErrorKind::kInternal, event.error->message(), ""};
    ApiError error = Refusal(*event.error);
    if (error.kind == ApiErrorKind::kQueueFull) error.kind = ApiErrorKind::kQueueTimeout;
    return error;
  }

  // A client that has left was not told.
  void RecordError(const ApiError& error) {
    if (!exchange_->gone()) exchange_->record().error_code = error.code();
  }

  // What it takes to write the end of the answer, beside its log-probabilities: texts as values, as text, and
  // where the text grows.
  int64_t WritingBytes() const {
    if (prepared_.stream && !shape_.format.keeps_stream) return 0;
    int64_t bytes = 0;
    for (const Choice& choice : choices_) bytes += choice.text_bytes;
    return shape_.format.text_copies * bytes;
  }

  TokenUsage Usage() const {
    TokenUsage total;
    for (size_t i = 0; i < choices_.size(); ++i) {
      const TokenUsage usage = choices_[i].generation.usage();
      // The choices of one prompt share it.
      if (i % static_cast<size_t>(prepared_.choices_per_prompt) == 0) {
        total.prompt_tokens += usage.prompt_tokens;
        total.cached_tokens += usage.cached_tokens;
      }
      total.completion_tokens += usage.completion_tokens;
      total.reasoning_tokens += usage.reasoning_tokens;
    }
    return total;
  }

  // For the access log.
  void Record(std::string_view reason) {
    const TokenUsage usage = Usage();
    GenerationFacts facts;
    facts.prompt_tokens = usage.prompt_tokens;
    facts.cached_tokens = usage.cached_tokens;
    facts.generated_tokens = usage.completion_tokens;
    facts.choices = choices_.size();
    facts.finish_reason = reason;
    if (first_token_) facts.first_token_seconds = Seconds(*first_token_ - prepared_.arrival);
    Clock::time_point last = first_token_.value_or(Clock::time_point());
    for (const Choice& choice : choices_) last = std::max(last, choice.last_token.value_or(last));
    const auto after_first = usage.completion_tokens - static_cast<int64_t>(choices_.size());
    if (after_first > 0 && last > *first_token_)
      facts.decode_tokens_per_second = static_cast<double>(after_first) / Seconds(last - *first_token_);
    exchange_->record().generation = std::move(facts);
  }

  const GenerationBackend backend_;
  PreparedGeneration prepared_;
  const std::shared_ptr<Exchange> exchange_;
  AnswerShape shape_;
  AnswerMemory memory_;
  std::vector<Choice> choices_;
  int64_t prompt_tokens_ = 0;
  std::optional<Clock::time_point> first_token_;  // of any choice
  size_t unfinished_ = 0;
  bool answered_ = false;                // what still comes from the engine has no reader
  std::optional<StreamEnd> end_stream_;  // once the events of this turn are written

  std::mutex mutex_;
  std::vector<SequenceEvent> events_;  // guarded by mutex_; not empty: a TakeEvents is under way
};

}  // namespace

void StartGeneration(GenerationBackend backend, PreparedGeneration prepared,
                     std::shared_ptr<Exchange> exchange) {
  std::make_shared<GenerationJob>(backend, std::move(prepared), std::move(exchange))->Start();
}

}  // namespace millrace::api
