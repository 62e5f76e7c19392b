#include "engine/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/function_ref.h"
#include "base/seconds.h"
#include "engine/overdue.h"

namespace millrace::engine {
namespace {

PlannerOptions ToPlannerOptions(const EngineOptions& options, const StepModel& model) {
  return {.policy = options.schedule_policy,
          .batch_tokens = model.max_batch_tokens(),
          .max_chunk = options.prefill_chunk,
          .max_rows = options.max_num_seqs,
          .pace = options.pace};
}

// Whose code runs, for errors.
constexpr std::string_view kReceiver = "the request's receiver";
constexpr std::string_view kConstraint = "the request's constraint";

// Runs code that is not ours to trust with exceptions: a model, a sink, a constraint.
Status Guarded(std::string_view what, FunctionRef<void()> call) {
  try {
    call();
    return {};
  } catch (const std::exception& thrown) {
    return Error(ErrorCode::kUnavailable, fmt::format("{} failed: {}", what, thrown.what()));
  } catch (...) {
    return Error(ErrorCode::kUnavailable, fmt::format("{} failed with an unknown exception", what));
  }
}

}  // namespace

Loop::Loop(std::unique_ptr<StepModel> model, const EngineOptions& options, StatsBoard& board)
    : model_(std::move(model)),
      options_(options),
      board_(board),
      planner_(ToPlannerOptions(options, *model_)),
      sampler_(model_->vocab_size()) {
  MILLRACE_CHECK(options.max_num_seqs >= 1 && options.max_num_seqs <= kMaxNumSeqs && options.max_queue >= 0 &&
                     options.max_queue_seconds >= 0 && options.prefill_chunk >= 1 &&
                     options.repetition_limit_tokens >= 0,
                 "engine options out of range: the flags' parser must refuse them");
  MILLRACE_CHECK(model_->max_batch_tokens() >= 1, "a model that takes no tokens");
  const auto slots = static_cast<size_t>(options.max_num_seqs);
  running_.reserve(slots);
  rows_.reserve(slots);
  batch_.reserve(slots);
  items_.reserve(slots);
  logits_.resize(slots * static_cast<size_t>(model_->vocab_size()));
  event_.top.reserve(kMaxLogprobs);
  histories_.reserve(slots);
  for (size_t i = 0; i < slots; ++i) {
    free_histories_.push_back(
        &histories_.emplace_back(model_->vocab_size(), options.repetition_limit_tokens));
    free_tokens_.emplace_back().reserve(static_cast<size_t>(model_->max_model_len()));
  }
}

Loop::~Loop() {
  MILLRACE_CHECK(idle(), "a loop ended with requests that were never told");
}

void Loop::Enqueue(QueuedRequest request) {
  if (request.prompt == nullptr)
    request.prompt = std::make_shared<const std::vector<TokenId>>(std::move(request.request.prompt));
  queue_.push_back(std::move(request));
}

void Loop::Cancel(SeqId id) {
  const auto waiting = std::ranges::find(queue_, id, &QueuedRequest::id);
  const auto preempted =
      std::ranges::find(preempted_, id, [](const Running& sequence) { return sequence.queued.id; });
  if (waiting != queue_.end() || preempted != preempted_.end()) {
    Running left(waiting != queue_.end() ? Running(std::move(*waiting)) : std::move(*preempted));
    waiting != queue_.end() ? (void)queue_.erase(waiting) : (void)preempted_.erase(preempted);
    left.finished = FinishReason::kCancelled;
    pool_full_ = false;  // the next may be smaller
    Leave(std::move(left));
    return;
  }
  for (Running& sequence : running_) {
    if (sequence.queued.id == id) sequence.finished = FinishReason::kCancelled;
  }
  RemoveFinished();
}

void Loop::CancelAll() {
  while (!queue_.empty()) Cancel(queue_.front().id);
  while (!preempted_.empty()) Cancel(preempted_.front().queued.id);
  for (Running& sequence : running_) sequence.finished = FinishReason::kCancelled;
  RemoveFinished();
}

void Loop::Step() {
  EndOverdue();
  MakeRoom();
  Admit();
  if (running_.empty()) return;
  board_.OnStepBegin();
  const Clock::time_point began = Clock::now();
  const size_t n_logits = BuildBatch();
  board_.OnStepPlanned(DescribeBatch());
  const auto logits = std::span(logits_).first(n_logits * static_cast<size_t>(model_->vocab_size()));
  const Status ran = Guarded("the model's step", [&] { model_->Step(items_, logits); });
  if (ran.ok()) {
    Advance();
  } else {
    FailBatch(ran.error());
  }
  planner_.OnStep(SecondsSince(began));
  RemoveFinished();
  board_.OnCache(model_->cache_stats());
  board_.OnStepEnd();
}

void Loop::EndOverdue() {
  const Clock::time_point now = Clock::now();
  const auto overdue = [&](const QueuedRequest& queued, bool waiting) {
    return Overdue(
        {queued.submitted, queued.request.deadline, options_.max_queue_seconds, queued.request.arrival},
        waiting, now);
  };
  for (Running& sequence : running_) {
    if (auto error = overdue(sequence.queued, /*waiting=*/false)) TimeOut(sequence, *std::move(error));
  }
  RemoveFinished();
  const auto leave = [&](Running left, Error error) {
    pool_full_ = false;  // the next may be smaller
    TimeOut(left, std::move(error));
    Leave(std::move(left));
  };
  for (size_t i = 0; i < preempted_.size();) {
    // It had its slot: only its deadline ends it.
    auto error = overdue(preempted_[i].queued, /*waiting=*/false);
    if (!error) {
      ++i;
      continue;
    }
    Running left = std::move(preempted_[i]);
    preempted_.erase(preempted_.begin() + static_cast<ptrdiff_t>(i));
    leave(std::move(left), *std::move(error));
  }
  for (size_t i = 0; i < queue_.size();) {
    auto error = overdue(queue_[i], /*waiting=*/!queue_[i].wait.has_slot);
    if (!error) {
      ++i;
      continue;
    }
    Running left(std::move(queue_[i]));
    queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(i));
    leave(std::move(left), *std::move(error));
  }
}

void Loop::MakeRoom() {
  for (size_t i = 0; i < running_.size(); ++i) {
    // The last goes first, in the end the sequence itself. One that is alone has the whole pool.
    while (i < running_.size()) {
      Running& sequence = running_[i];
      Status reserved;
      const Status called = Guarded("making room for the sequence", [&] {
        reserved = model_->Reserve(*sequence.state, std::ssize(sequence.tokens));
      });
      if (called.ok() && reserved.ok()) break;
      if (called.ok() && running_.size() > 1) {
        PreemptLast();
        continue;
      }
      Fail(sequence, called.ok() ? Error(ErrorCode::kResourceExhausted,
                                         fmt::format("the KV pool has no room for a sequence of {} tokens",
                                                     sequence.tokens.size()))
                                 : called.error());
      break;
    }
  }
  RemoveFinished();
}

void Loop::PreemptLast() {
  Running sequence = std::move(running_.back());
  running_.pop_back();
  GiveUpState(sequence);
  // Until there is more room: coming back at once it would only be preempted again.
  pool_full_ = true;
  full_at_tokens_ = model_->cache_stats().in_use_tokens;
  board_.OnPreempted(std::ssize(sequence.tokens));
  preempted_.push_front(std::move(sequence));
}

void Loop::GiveUpState(Running& sequence) {
  if (sequence.history != nullptr) free_histories_.push_back(std::exchange(sequence.history, nullptr));
  sequence.state.reset();
  sequence.seen = 0;
}

// Pages come free without a leave when two sequences turn out to have read the same.
bool Loop::PoolStaysFull() {
  if (pool_full_ && model_->cache_stats().in_use_tokens < full_at_tokens_) pool_full_ = false;
  return pool_full_;
}

void Loop::Admit() {
  EndWaits();
  while (!PoolStaysFull() && AdmitNext()) {
  }
}

bool Loop::AdmitNext() {
  const auto next =
      std::ranges::find_if(queue_, [](const QueuedRequest& request) { return !request.wait.reader; });
  const bool goes_on =
      !preempted_.empty() && (next == queue_.end() || preempted_.front().queued.id < next->id);
  if (!goes_on) {
    if (next == queue_.end() || (!next->wait.has_slot && !HasFreeSlot())) return false;
    if (WaitsForReader(*next)) return true;
  }
  Running sequence = goes_on ? std::move(preempted_.front()) : Running(std::move(*next));
  if (!Begin(sequence)) {
    if (goes_on) {
      preempted_.front() = std::move(sequence);
    } else {
      *next = std::move(sequence.queued);
    }
    return false;
  }
  goes_on ? preempted_.pop_front() : (void)queue_.erase(next);
  if (sequence.finished) {
    Leave(std::move(sequence));
    return true;
  }
  const auto behind = std::ranges::upper_bound(running_, sequence.queued.id, {},
                                               [](const Running& other) { return other.queued.id; });
  running_.insert(behind, std::move(sequence));
  return true;
}

bool Loop::HasFreeSlot() const {
  const auto kept =
      std::ranges::count_if(queue_, [](const QueuedRequest& request) { return request.wait.has_slot; });
  return std::ssize(running_) + std::ssize(preempted_) + kept < options_.max_num_seqs;
}

void Loop::EndWaits() {
  for (const Running& sequence : running_) model_->ForgetAsked(*sequence.state);
  for (QueuedRequest& request : queue_) {
    const PromptWait& wait = request.wait;
    if (!wait.reader) continue;
    Running* const reader = Find(*wait.reader);
    if (reader == nullptr || reader->seen >= wait.shared.length) {
      EndWait(request);
      pool_full_ = false;  // it may need less than one behind it that did not fit
    } else if (wait.shared.asks) {
      model_->LeaveFor(*reader->state, std::ssize(*request.prompt), wait.shared.length);
    }
  }
}

void Loop::EndWait(QueuedRequest& request) {
  if (!request.wait.reader) return;
  request.wait.reader.reset();
  board_.OnWaitEnded(request.wait.shared.saved);
}

Loop::Running* Loop::Find(SeqId id) {
  const auto found =
      std::ranges::find(running_, id, [](const Running& sequence) { return sequence.queued.id; });
  return found == running_.end() ? nullptr : &*found;
}

bool Loop::WaitsForReader(QueuedRequest& request) {
  const std::span<const TokenId> prompt = *request.prompt;
  Running* best = nullptr;
  SharedReading most;
  for (Running& reader : running_) {
    if (!reader.reads()) continue;
    const auto read = std::span<const TokenId>(reader.tokens).first(static_cast<size_t>(reader.begun_with));
    const int64_t common = std::ranges::mismatch(prompt, read).in1 - prompt.begin();
    const auto shared = model_->WorthWaiting(*reader.state, prompt, common);
    if (!shared || shared->saved <= most.saved) continue;
    // The reader would come there later than the request does by itself.
    if (shared->length - reader.seen > shared->saved) continue;
    best = &reader;
    most = *shared;
  }
  if (best == nullptr) return false;
  if (most.asks) model_->LeaveFor(*best->state, std::ssize(prompt), most.length);
  request.wait = {.reader = best->queued.id, .shared = most, .has_slot = true};
  board_.OnWaitsForReader(most.saved);
  return true;
}

bool Loop::Begin(Running& sequence) {
  while (!TryBegin(sequence)) {
    // Those behind it have passed it while it waited for its reader.
    if (running_.back().queued.id < sequence.queued.id) return false;
    PreemptLast();
    EndWaits();  // for the one that has given way
  }
  return true;
}

bool Loop::TryBegin(Running& sequence) {
  std::optional<Error> error;
  StartedSequence started;
  const Status called = Guarded("making room for the sequence", [&] {
    auto made = model_->NewSequence(sequence.begun() ? sequence.tokens : *sequence.queued.prompt);
    if (made.ok()) {
      started = std::move(made).value();
    } else {
      error = made.error();
    }
  });
  if (!called.ok()) error = called.error();
  if (error && error->code() == ErrorCode::kResourceExhausted && !running_.empty()) {
    pool_full_ = true;
    full_at_tokens_ = model_->cache_stats().in_use_tokens;
    return false;
  }
  if (error) {
    Fail(sequence, *error);
    return true;
  }
  sequence.state = std::move(started.sequence);
  sequence.seen = started.length;
  if (!sequence.begun()) TakePrompt(sequence);
  sequence.begun_with = std::ssize(sequence.tokens);
  board_.OnAdmitted(sequence.begun_with, started.length, started.replayed_tokens);
  if (!sequence.cached_tokens) {
    sequence.cached_tokens = started.length;
    sequence.times.admitted = SecondsSince(sequence.queued.submitted);
  }
  if (const Status begun = BeginTokens(sequence); !begun.ok()) Fail(sequence, begun.error());
  return true;
}

void Loop::TakePrompt(Running& sequence) {
  // One for each slot is enough: preempted ones keep theirs.
  MILLRACE_CHECK(!free_tokens_.empty(), "more sequences have begun than there are slots");
  sequence.tokens = std::move(free_tokens_.back());
  free_tokens_.pop_back();
  sequence.tokens.assign(sequence.queued.prompt->begin(), sequence.queued.prompt->end());
  sequence.queued.prompt.reset();
}

Status Loop::BeginTokens(Running& sequence) {
  sequence.history = free_histories_.back();
  free_histories_.pop_back();
  const auto tokens = std::span<const TokenId>(sequence.tokens);
  const auto n_prompt = static_cast<size_t>(sequence.prompt_tokens);
  sequence.history->Start(tokens.first(n_prompt), sequence.sampling());
  for (const TokenId token : tokens.subspan(n_prompt)) sequence.history->OnToken(token);
  const TokenConstraint* const constraint = sequence.sampling().constraint.get();
  if (constraint == nullptr || sequence.constraint != nullptr) return {};
  MILLRACE_RETURN_IF_ERROR(Guarded(kConstraint, [&] { sequence.constraint = constraint->Clone(); }));
  MILLRACE_CHECK(sequence.constraint != nullptr, "a constraint's clone is nothing");
  return {};
}

size_t Loop::BuildBatch() {
  rows_.clear();
  for (const Running& sequence : running_) {
    const int64_t left = sequence.tokens_left();
    rows_.push_back(
        {.prompt_left = !sequence.reads() && left == 1 ? 0 : left, .arrival = sequence.queued.id.value});
  }
  PassOnPriority();
  planner_.Plan(rows_, batch_);

  items_.clear();
  size_t n_logits = 0;
  for (const ScheduleSlice& slice : batch_) {
    Running& sequence = running_[slice.row];
    StepItem item;
    item.sequence = sequence.state.get();
    item.tokens = std::span<const TokenId>(sequence.tokens)
                      .subspan(static_cast<size_t>(sequence.seen), static_cast<size_t>(slice.tokens));
    item.wants_logits = slice.tokens == sequence.tokens_left();
    n_logits += item.wants_logits;
    items_.push_back(item);
  }
  return n_logits;
}

void Loop::PassOnPriority() {
  for (const QueuedRequest& waiting : queue_) {
    if (!waiting.wait.reader) continue;
    const Running* const reader = Find(*waiting.wait.reader);
    MILLRACE_CHECK(reader != nullptr, "a request waits for a sequence that does not run");
    ScheduleRow& row = rows_[static_cast<size_t>(reader - running_.data())];
    row.arrival = std::min(row.arrival, waiting.id.value);
    row.counts_as =
        std::min(row.counts_as.value_or(row.prompt_left), std::ssize(*waiting.prompt) - reader->seen);
  }
}

StepShape Loop::DescribeBatch() const {
  StepShape shape{.sequences = static_cast<int64_t>(batch_.size()),
                  .decode_rows = planner_.decode_rows(),
                  .prefill_tokens = planner_.prefill_tokens()};
  for (const ScheduleSlice& slice : batch_)
    shape.depth = std::max(shape.depth, running_[slice.row].seen + slice.tokens);
  return shape;
}

void Loop::Advance() {
  int64_t prompt_tokens = 0;
  for (const ScheduleSlice& slice : batch_) {
    Running& sequence = running_[slice.row];
    if (sequence.reads()) prompt_tokens += slice.tokens;
    sequence.seen += slice.tokens;
  }
  board_.OnPromptTokens(prompt_tokens);

  const auto vocab_size = static_cast<size_t>(model_->vocab_size());
  size_t row = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (!items_[i].wants_logits) continue;
    TakeTokens(running_[batch_[i].row], std::span(logits_).subspan(row++ * vocab_size, vocab_size));
  }
}

void Loop::TakeTokens(Running& sequence, std::span<const float> logits) {
  const auto take = [&]() -> Status {
    if (sequence.generated() == 0) {
      MILLRACE_RETURN_IF_ERROR(AskConstraint(sequence));
      // The row of logits was for nothing when a run comes first; the model sees the run in the next step.
      if (sequence.finished || sequence.tokens_left() > 0) return {};
    }
    MILLRACE_RETURN_IF_ERROR(Sample(sequence, logits));
    MILLRACE_RETURN_IF_ERROR(TakeToken(sequence));
    return AskConstraint(sequence);
  };
  if (const Status taken = take(); !taken.ok()) Fail(sequence, taken.error());
}

Status Loop::Sample(Running& sequence, std::span<const float> logits) {
  const SamplingParams& sampling = sequence.sampling();
  withheld_.clear();
  if (sequence.generated() < sampling.min_tokens) {
    withheld_ = sampling.stop_token_ids;
    if (!sampling.ignore_eos) withheld_.push_back(model_->eos_token_id());
  }
  return sampler_.Sample(
      logits, sampling, std::ssize(sequence.tokens), event_,
      {.counts = sequence.history->counts(), .withheld = withheld_, .allowed = sequence.allowed});
}

Status Loop::TakeToken(Running& sequence) {
  const TokenId token = event_.token;
  if (sequence.generated() == 0) sequence.times.first_token = SecondsSince(sequence.queued.submitted);
  sequence.tokens.push_back(token);
  sequence.history->OnToken(token);
  board_.OnToken();
  if (sequence.constraint != nullptr) {
    MILLRACE_RETURN_IF_ERROR(Guarded(kConstraint, [&] { sequence.constraint->OnToken(token); }));
  }
  MILLRACE_RETURN_IF_ERROR(Guarded(kReceiver, [&] { sequence.queued.sink->OnToken(event_); }));
  sequence.finished = ReasonToEnd(sequence, token);
  return {};
}

Status Loop::AskConstraint(Running& sequence) {
  while (sequence.constraint != nullptr && !sequence.finished) {
    MILLRACE_RETURN_IF_ERROR(Guarded(kConstraint, [&] { sequence.allowed = sequence.constraint->Next(); }));
    MILLRACE_RETURN_IF_ERROR(CheckFollowable(sequence.allowed, model_->vocab_size()));
    if (std::holds_alternative<EndOfSequence>(sequence.allowed)) sequence.finished = FinishReason::kStop;
    const auto* const forced = std::get_if<ForcedTokens>(&sequence.allowed);
    // Logprobs need a row of logits for each token: the run is then taken token by token.
    if (forced == nullptr || sequence.sampling().logprobs) break;
    forced_.assign(forced->ids.begin(), forced->ids.end());  // a view that ends with the next call
    event_.chosen.reset();
    event_.top.clear();
    for (size_t i = 0; i < forced_.size() && !sequence.finished; ++i) {
      event_.token = forced_[i];
      MILLRACE_RETURN_IF_ERROR(TakeToken(sequence));
    }
  }
  return {};
}

std::optional<FinishReason> Loop::ReasonToEnd(const Running& sequence, TokenId token) const {
  const SamplingParams& sampling = sequence.sampling();
  if (token == model_->eos_token_id() && !sampling.ignore_eos) return FinishReason::kStop;
  if (std::ranges::find(sampling.stop_token_ids, token) != sampling.stop_token_ids.end()) {
    return FinishReason::kStop;
  }
  if (sequence.history->repeats() && sequence.generated() >= sampling.min_tokens) {
    return FinishReason::kRepetition;
  }
  if (sequence.generated() >= sampling.max_tokens || std::ssize(sequence.tokens) >= model_->max_model_len()) {
    return FinishReason::kLength;
  }
  return std::nullopt;
}

void Loop::Fail(Running& sequence, const Error& error) {
  sequence.finished = FinishReason::kError;
  sequence.error = error;
}

void Loop::TimeOut(Running& sequence, Error error) {
  sequence.finished = FinishReason::kTimeout;
  sequence.error = std::move(error);
}

void Loop::FailBatch(const Error& error) {
  for (const ScheduleSlice& slice : batch_) Fail(running_[slice.row], error);
}

void Loop::RemoveFinished() {
  for (size_t i = 0; i < running_.size();) {
    if (!running_[i].finished) {
      ++i;
      continue;
    }
    Running sequence = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
    Leave(std::move(sequence));
  }
}

void Loop::Leave(Running sequence) {
  EndWait(sequence.queued);
  const bool held_slot = sequence.state != nullptr;
  if (held_slot) pool_full_ = false;
  GiveUpState(sequence);
  if (held_slot) board_.OnCache(model_->cache_stats());
  sequence.times.finished = SecondsSince(sequence.queued.submitted);
  const FinishEvent event{.reason = *sequence.finished,
                          .prompt_tokens = sequence.prompt_tokens,
                          .cached_tokens = sequence.cached_tokens.value_or(0),
                          .generated_tokens = sequence.generated(),
                          .times = sequence.times,
                          .error = std::move(sequence.error)};
  // Counted before the sink hears of it: who sees the end may count on the free slot.
  board_.OnLeft(held_slot, event);
  if (sequence.begun()) {
    sequence.tokens.clear();
    free_tokens_.push_back(std::move(sequence.tokens));
  }
  const std::string& request_id = sequence.queued.request.request_id;
  LogFinished(request_id, event);
  const Status told = Guarded(kReceiver, [&] { sequence.queued.sink->OnFinish(event); });
  if (!told.ok()) LogLostFinish(request_id, told.error().message());
  sequence.queued.sink.reset();
  board_.OnReported();
}

}  // namespace millrace::engine
