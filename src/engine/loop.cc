#include "engine/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/function_ref.h"

namespace millrace::engine {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Runs code that is not ours to trust with exceptions: a model, a sink.
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
    : model_(std::move(model)), options_(options), board_(board), sampler_(model_->vocab_size()) {
  MILLRACE_CHECK(options.max_num_seqs >= 1 && options.max_num_seqs <= kMaxNumSeqs && options.max_queue >= 0 &&
                     options.prefill_chunk >= 1,
                 "engine options out of range: the flags' parser must refuse them");
  MILLRACE_CHECK(model_->max_batch_tokens() >= 1, "a model that takes no tokens");
  const auto slots = static_cast<size_t>(options.max_num_seqs);
  running_.reserve(slots);
  rows_.reserve(slots);
  batch_.reserve(slots);
  items_.reserve(slots);
  logits_.resize(slots * static_cast<size_t>(model_->vocab_size()));
  event_.top.reserve(kMaxLogprobs);
}

Loop::~Loop() {
  MILLRACE_CHECK(idle(), "a loop ended with requests that were never told");
}

void Loop::Enqueue(QueuedRequest request) {
  queue_.push_back(std::move(request));
}

void Loop::Cancel(SeqId id) {
  const auto waiting =
      std::find_if(queue_.begin(), queue_.end(), [id](const QueuedRequest& q) { return q.id == id; });
  if (waiting != queue_.end()) {
    Running left{.queued = std::move(*waiting), .finished = FinishReason::kCancelled};
    queue_.erase(waiting);
    pool_full_ = false;  // the next in the queue may be smaller
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
  for (Running& sequence : running_) sequence.finished = FinishReason::kCancelled;
  RemoveFinished();
}

void Loop::Step() {
  Admit();
  if (running_.empty()) return;
  board_.OnStepBegin();
  const size_t n_logits = BuildBatch();
  const auto logits = std::span(logits_).first(n_logits * static_cast<size_t>(model_->vocab_size()));
  const Status ran = Guarded("the model's step", [&] { model_->Step(items_, logits); });
  if (ran.ok()) {
    Advance();
  } else {
    FailBatch(ran.error());
  }
  RemoveFinished();
  board_.OnStepEnd();
}

void Loop::Admit() {
  while (!queue_.empty() && !pool_full_ && running_.size() < static_cast<size_t>(options_.max_num_seqs)) {
    const GenerationRequest& request = queue_.front().request;
    const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
    const int64_t room = model_->max_model_len() - prompt_tokens;
    const int64_t tokens = prompt_tokens + std::min(room, request.sampling.max_tokens);
    std::unique_ptr<StepSequence> state;
    std::optional<Error> error;
    const Status called = Guarded("making room for the sequence", [&] {
      auto made = model_->NewSequence(tokens);
      if (made.ok()) {
        state = std::move(made).value();
      } else {
        error = made.error();
      }
    });
    if (!called.ok()) error = called.error();
    if (error && error->code() == ErrorCode::kResourceExhausted && !running_.empty()) {
      pool_full_ = true;
      return;
    }
    Running sequence{.queued = std::move(queue_.front()), .state = std::move(state)};
    queue_.pop_front();
    if (error) {
      sequence.finished = FinishReason::kError;
      sequence.error = std::move(error);
      Leave(std::move(sequence));
      continue;
    }
    sequence.times.admitted = SecondsSince(sequence.queued.submitted);
    board_.OnAdmitted();
    running_.push_back(std::move(sequence));
  }
}

size_t Loop::BuildBatch() {
  rows_.clear();
  for (const Running& sequence : running_) rows_.push_back({sequence.prompt_left()});
  const int64_t batch_tokens = model_->max_batch_tokens();
  ScheduleFairShare(rows_, {batch_tokens, std::min(options_.prefill_chunk, batch_tokens)}, turn_++, batch_);

  items_.clear();
  size_t n_logits = 0;
  for (const ScheduleSlice& slice : batch_) {
    Running& sequence = running_[slice.row];
    StepItem item;
    item.sequence = sequence.state.get();
    item.results_from = static_cast<int64_t>(sequence.queued.request.prompt.size()) - 1;
    if (sequence.prompt_left() > 0) {
      item.tokens =
          std::span(sequence.queued.request.prompt)
              .subspan(static_cast<size_t>(sequence.prompt_done), static_cast<size_t>(slice.tokens));
      item.wants_logits = slice.tokens == sequence.prompt_left();
    } else {
      item.tokens = std::span(&sequence.last_token, 1);
      item.wants_logits = true;
    }
    n_logits += item.wants_logits;
    items_.push_back(item);
  }
  return n_logits;
}

void Loop::Advance() {
  int64_t prompt_tokens = 0;
  for (const ScheduleSlice& slice : batch_) {
    Running& sequence = running_[slice.row];
    if (sequence.prompt_left() == 0) continue;
    sequence.prompt_done += slice.tokens;
    prompt_tokens += slice.tokens;
  }
  board_.OnPromptTokens(prompt_tokens);

  const auto vocab_size = static_cast<size_t>(model_->vocab_size());
  size_t row = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (!items_[i].wants_logits) continue;
    TakeToken(running_[batch_[i].row], std::span(logits_).subspan(row++ * vocab_size, vocab_size));
  }
}

void Loop::TakeToken(Running& sequence, std::span<const float> logits) {
  const GenerationRequest& request = sequence.queued.request;
  const int64_t position = static_cast<int64_t>(request.prompt.size()) + sequence.generated;
  Status done = sampler_.Sample(logits, request.sampling, position, event_);
  if (done.ok()) {
    if (sequence.generated == 0) sequence.times.first_token = SecondsSince(sequence.queued.submitted);
    sequence.last_token = event_.token;
    ++sequence.generated;
    board_.OnToken();
    done = Guarded("the request's receiver", [&] { sequence.queued.sink->OnToken(event_); });
  }
  if (done.ok()) {
    sequence.finished = ReasonToEnd(sequence);
  } else {
    sequence.finished = FinishReason::kError;
    sequence.error = done.error();
  }
}

std::optional<FinishReason> Loop::ReasonToEnd(const Running& sequence) const {
  const GenerationRequest& request = sequence.queued.request;
  const SamplingParams& sampling = request.sampling;
  const TokenId token = sequence.last_token;
  if (token == model_->eos_token_id() && !sampling.ignore_eos) return FinishReason::kStop;
  if (std::ranges::find(sampling.stop_token_ids, token) != sampling.stop_token_ids.end()) {
    return FinishReason::kStop;
  }
  const int64_t length = static_cast<int64_t>(request.prompt.size()) + sequence.generated;
  if (sequence.generated >= sampling.max_tokens || length >= model_->max_model_len()) {
    return FinishReason::kLength;
  }
  return std::nullopt;
}

void Loop::FailBatch(const Error& error) {
  for (const ScheduleSlice& slice : batch_) {
    running_[slice.row].finished = FinishReason::kError;
    running_[slice.row].error = error;
  }
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
  const bool held_slot = sequence.state != nullptr;
  if (held_slot) pool_full_ = false;
  sequence.state.reset();
  const FinishEvent event{.reason = *sequence.finished,
                          .prompt_tokens = static_cast<int64_t>(sequence.queued.request.prompt.size()),
                          .generated_tokens = sequence.generated,
                          .error = std::move(sequence.error)};
  sequence.times.finished = SecondsSince(sequence.queued.submitted);
  // Counted before the sink hears of it: who sees the end may count on the free slot.
  board_.OnLeft(held_slot, event.reason);
  const std::string& request_id = sequence.queued.request.request_id;
  LogFinished(request_id, event, sequence.times);
  const Status told = Guarded("the request's receiver", [&] { sequence.queued.sink->OnFinish(event); });
  if (!told.ok()) LogLostFinish(request_id, told.error().message());
  sequence.queued.sink.reset();
  board_.OnReported();
}

}  // namespace millrace::engine
