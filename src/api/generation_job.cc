#include "api/generation_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "api/error_response.h"
#include "engine/queue_estimate.h"

namespace millrace::api {
namespace {

static_assert(kMaxTopLogprobs == engine::kMaxLogprobs, "the decoders accept what the engine accepts");

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

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
        memory_(backend.answers, 0) {}

  void Start() {
    exchange_->record().model = prepared_.model;
    if (const std::optional<Error> error = SubmitAll()) {
      CancelAll();
      answered_ = true;
      return SendError(Refusal(*error));
    }
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

  std::optional<Error> SubmitAll() {
    const size_t sequences = prepared_.prompts.size() * static_cast<size_t>(prepared_.choices_per_prompt);
    if (const auto capacity = static_cast<size_t>(backend_.engine.capacity()); sequences > capacity) {
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("the request asks for {} answers, prompts times n, and this server has room for "
                      "{} at once; lower n",
                      sequences, capacity));
    }
    for (size_t p = 0; p < prepared_.prompts.size(); ++p) {
      prompt_tokens_ += static_cast<int64_t>(prepared_.prompts[p].size());
      for (int c = 0; c < prepared_.choices_per_prompt; ++c) {
        engine::GenerationRequest request{prepared_.request_id, prepared_.prompts[p], prepared_.sampling};
        request.deadline = prepared_.deadline;
        request.sampling.seed += static_cast<uint64_t>(c);
        request.sampling.max_tokens = prepared_.limits[p].tokens;
        request.sampling.min_tokens = std::min(request.sampling.min_tokens, request.sampling.max_tokens);
        auto sink = std::make_shared<Sink>(shared_from_this(), choices_.size());
        auto submitted = backend_.engine.Submit(std::move(request), std::move(sink));
        if (!submitted.ok()) {
          if (!choices_.empty()) CountRequest();  // they will be counted as ended, too
          return submitted.error();
        }
        choices_.emplace_back(*submitted, backend_.tokenizer, prepared_.text, prepared_.limits[p].at_limit);
        ++unfinished_;
      }
    }
    CountRequest();
    prepared_.prompts.clear();
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
    const std::string begin = prepared_.format->StreamBegin(prompt_tokens_);
    if (!begin.empty()) exchange_->Write(begin);
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
    }
    if (!stream.empty()) exchange_->Write(stream);
    if (end_stream_) exchange_->EndStream(*std::exchange(end_stream_, std::nullopt));
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
    memory_.Grow(kAnswerBytesPerToken);
    choice.last_token = at;
    Deliver(index, choice.generation.OnToken(event), stream);
    if (choice.generation.stopped()) backend_.engine.Cancel(choice.id);
  }

  bool KeepsAnswers() const { return !prepared_.stream || prepared_.recorder; }

  void Deliver(size_t index, TextDelta delta, std::string& stream) {
    if (delta.empty()) return;
    if (prepared_.stream) stream += prepared_.format->Delta(index, delta);
    if (KeepsAnswers()) choices_[index].answer.Append(std::move(delta));
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
    if (prepared_.stream) stream += prepared_.format->ChoiceEnd(index, rest, choice.generation.end());
    if (KeepsAnswers()) {
      choice.answer.Append(std::move(rest));
      choice.whole = choice.answer.Finish(choice.generation.end());
    }
    if (prepared_.recorder) prepared_.recorder->Record(choice.generation, choice.whole);
    if (unfinished_ == 0) Finish(stream);
  }

  void Finish(std::string& stream) {
    answered_ = true;
    Record(WordFor(choices_.front().generation.end()));
    if (prepared_.stream) {
      stream += prepared_.format->StreamEnd(Usage());
      end_stream_ = StreamEnd::kWhole;
      return;
    }
    std::vector<FinishedChoice> finished;
    for (Choice& choice : choices_) finished.push_back(std::move(choice.whole));
    HttpResponse response;
    response.headers = prepared_.headers;
    response.body = prepared_.format->Whole(finished, Usage());
    exchange_->Send(std::move(response));
  }

  void SendError(const ApiError& error) {
    RecordError(error);
    exchange_->Send(ErrorResponse(error, prepared_.headers, {prepared_.dialect, prepared_.request_id}));
  }

  // One sequence failed or was taken from us (the server is stopping, or the client left): the others go too.
  void Fail(const engine::FinishEvent& event, std::string& stream) {
    answered_ = true;
    CancelAll();
    Record(MetricReason(event.reason));
    const ApiError error = FailureOf(event);
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
  HeldBytes memory_;
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
