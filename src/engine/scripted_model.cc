#include "engine/scripted_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/check.h"

namespace millrace::engine {

class ScriptedModel::Sequence : public StepSequence {
 public:
  Sequence(ScriptedModel& model, uint64_t number, std::span<const TokenId> begins_with, int64_t length)
      : model_(model),
        number_(number),
        begins_with_(begins_with.begin(), begins_with.end()),
        reserved_(std::ssize(begins_with)),
        tokens_(begins_with.begin(), begins_with.begin() + length) {}
  ~Sequence() override { model_.OnSequenceEnd(*this); }

  uint64_t number() const { return number_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  int64_t& reserved() { return reserved_; }
  std::set<int64_t>& asked() { return asked_; }

  void Append(std::span<const TokenId> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    MILLRACE_CHECK(std::ssize(tokens_) <= reserved_,
                   "the engine gave a sequence more tokens than it reserved");
    const auto n = static_cast<ptrdiff_t>(std::min(tokens_.size(), begins_with_.size()));
    MILLRACE_CHECK(std::equal(tokens_.begin(), tokens_.begin() + n, begins_with_.begin()),
                   "a sequence goes on otherwise than it was begun");
  }

  // The prompt is what the sequence holds when logits are first wanted.
  bool begun() const { return prompt_tokens_ > 0; }
  void Begin(std::vector<TokenId> answer) {
    prompt_tokens_ = tokens_.size();
    answer_ = std::move(answer);
  }
  std::optional<TokenId> NextToken() const {
    const size_t next = tokens_.size() - prompt_tokens_;
    return next < answer_.size() ? std::optional(answer_[next]) : std::nullopt;
  }

 private:
  ScriptedModel& model_;
  const uint64_t number_;
  const std::vector<TokenId> begins_with_;
  int64_t reserved_;
  std::set<int64_t> asked_;  // lengths that others wait for
  std::vector<TokenId> tokens_;
  size_t prompt_tokens_ = 0;
  std::vector<TokenId> answer_;
};

ScriptedModel::ScriptedModel(ScriptedModelOptions options) : options_(options) {}

ScriptedModel::~ScriptedModel() {
  MILLRACE_CHECK(live_sequences() == 0, "a sequence outlives its model");
}

void ScriptedModel::Play(std::vector<TokenId> prompt, std::vector<TokenId> answer) {
  std::lock_guard lock(mutex_);
  scripts_[std::move(prompt)] = std::move(answer);
}

void ScriptedModel::PlayByDefault(std::vector<TokenId> answer) {
  std::lock_guard lock(mutex_);
  default_script_ = std::move(answer);
}

void ScriptedModel::ChooseScripts(ScriptFn fn) {
  std::lock_guard lock(mutex_);
  script_fn_ = std::move(fn);
}

void ScriptedModel::ComputeLogits(LogitsFn fn) {
  std::lock_guard lock(mutex_);
  logits_fn_ = std::move(fn);
}

void ScriptedModel::FailSteps(int n) {
  std::lock_guard lock(mutex_);
  steps_to_fail_ = n;
}

void ScriptedModel::FailNewSequence(int n, Error error) {
  std::lock_guard lock(mutex_);
  sequences_to_fail_ = n;
  sequence_error_ = std::move(error);
}

void ScriptedModel::HoldSteps() {
  std::lock_guard lock(mutex_);
  hold_ = true;
}

void ScriptedModel::AllowSteps(int n) {
  std::lock_guard lock(mutex_);
  allowed_steps_ += n;
  blocked_ = false;
  changed_.notify_all();
}

void ScriptedModel::ReleaseSteps() {
  std::lock_guard lock(mutex_);
  hold_ = false;
  allowed_steps_ = 0;
  blocked_ = false;
  changed_.notify_all();
}

bool ScriptedModel::WaitUntilHeld(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return blocked_; });
}

std::vector<ScriptedModel::RecordedStep> ScriptedModel::recorded_steps() const {
  std::lock_guard lock(mutex_);
  return recorded_;
}

int64_t ScriptedModel::reserved_tokens() const {
  std::lock_guard lock(mutex_);
  return reserved_tokens_;
}

int ScriptedModel::live_sequences() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(live_.size());
}

int ScriptedModel::times_left() const {
  std::lock_guard lock(mutex_);
  return times_left_;
}

Status ScriptedModel::TakeTokens(int64_t n) {
  if (n > options_.pool_tokens - reserved_tokens_) {
    return Error(ErrorCode::kResourceExhausted, fmt::format("{} tokens do not fit: {} of {} are reserved", n,
                                                            reserved_tokens_, options_.pool_tokens));
  }
  reserved_tokens_ += n;
  return {};
}

Result<StartedSequence> ScriptedModel::NewSequence(std::span<const TokenId> tokens) {
  std::lock_guard lock(mutex_);
  if (sequences_to_fail_ > 0) {
    --sequences_to_fail_;
    return sequence_error_;
  }
  MILLRACE_RETURN_IF_ERROR(TakeTokens(std::ssize(tokens)));
  const int64_t length = ReusableTokens(tokens);
  auto sequence = std::make_unique<Sequence>(*this, ++sequences_made_, tokens, length);
  live_.push_back(sequence.get());
  return StartedSequence{.sequence = std::move(sequence), .length = length};
}

int64_t ScriptedModel::ReusableTokens(std::span<const TokenId> tokens) const {
  const auto common = [&](const std::vector<TokenId>& other) {
    return std::min(std::ranges::mismatch(other, tokens).in1 - other.begin(), std::ssize(tokens) - 1);
  };
  int64_t length = 0;
  for (const std::vector<TokenId>& before : ended_) length = std::max(length, common(before));
  if (options_.page_tokens == 0) return length;
  for (const Sequence* running : live_)
    length = std::max(length, common(running->tokens()) / options_.page_tokens * options_.page_tokens);
  return length;
}

std::optional<SharedReading> ScriptedModel::WorthWaiting(const StepSequence& reader,
                                                         std::span<const TokenId> tokens,
                                                         int64_t common) const noexcept {
  if (options_.page_tokens == 0) return std::nullopt;
  std::lock_guard lock(mutex_);
  const int64_t length =
      std::min(common, std::ssize(tokens) - 1) / options_.page_tokens * options_.page_tokens;
  const int64_t saved = length - ReusableTokens(tokens);
  if (saved < options_.page_tokens || std::ssize(static_cast<const Sequence&>(reader).tokens()) >= length)
    return std::nullopt;
  return SharedReading{.length = length, .saved = saved, .asks = true};
}

void ScriptedModel::LeaveFor(StepSequence& reader, int64_t /*n_tokens*/, int64_t length) noexcept {
  static_cast<Sequence&>(reader).asked().insert(length);
}

void ScriptedModel::ForgetAsked(StepSequence& reader) noexcept {
  static_cast<Sequence&>(reader).asked().clear();
}

Status ScriptedModel::Reserve(StepSequence& sequence, int64_t length) {
  std::lock_guard lock(mutex_);
  int64_t& reserved = static_cast<Sequence&>(sequence).reserved();
  if (length <= reserved) return {};
  MILLRACE_RETURN_IF_ERROR(TakeTokens(length - reserved));
  reserved = length;
  return {};
}

void ScriptedModel::OnSequenceEnd(Sequence& sequence) {
  std::lock_guard lock(mutex_);
  reserved_tokens_ -= sequence.reserved();
  std::erase(live_, &sequence);
  if (options_.reuse_prefixes) ended_.push_back(sequence.tokens());
}

void ScriptedModel::WaitForPermission(std::unique_lock<std::mutex>& lock) {
  while (hold_ && allowed_steps_ == 0) {
    blocked_ = true;
    changed_.notify_all();
    changed_.wait(lock);
  }
  if (hold_) --allowed_steps_;
}

ScriptedModel::Script ScriptedModel::ScriptOf(const std::vector<TokenId>& prompt) const {
  if (const auto found = scripts_.find(prompt); found != scripts_.end()) return {found->second};
  if (script_fn_) {
    if (std::optional<Script> chosen = script_fn_(prompt)) return *std::move(chosen);
  }
  return {default_script_};
}

std::chrono::milliseconds ScriptedModel::FillLogits(Sequence& sequence, std::span<float> logits) {
  if (logits_fn_) {
    logits_fn_(sequence.tokens(), logits);
    return {};
  }
  std::chrono::milliseconds delay{0};
  if (!sequence.begun()) {
    Script script = ScriptOf(sequence.tokens());
    sequence.Begin(std::move(script.answer));
    delay = script.prefill_delay;
  }
  std::ranges::fill(logits, -1e4f);
  logits[static_cast<size_t>(sequence.NextToken().value_or(options_.eos_token_id))] = 0;
  return delay;
}

void ScriptedModel::RecordStep(std::span<const StepItem> items) {
  RecordedStep step;
  for (const StepItem& item : items) {
    step.push_back({static_cast<Sequence*>(item.sequence)->number(),
                    {item.tokens.begin(), item.tokens.end()},
                    item.wants_logits});
  }
  recorded_.push_back(std::move(step));
}

void ScriptedModel::Step(std::span<const StepItem> items, std::span<float> logits) {
  std::chrono::microseconds duration = options_.step_delay;
  for (const StepItem& item : items) duration += options_.token_delay * item.tokens.size();
  if (duration.count() > 0) std::this_thread::sleep_for(duration);
  if (options_.step_period.count() > 0) {
    std::this_thread::sleep_until(next_step_);
    next_step_ = std::max(next_step_ + options_.step_period, std::chrono::steady_clock::now());
  }
  std::unique_lock lock(mutex_);
  WaitForPermission(lock);
  if (options_.record_steps) RecordStep(items);
  if (steps_to_fail_ > 0) {
    --steps_to_fail_;
    throw std::runtime_error("scripted failure");
  }
  const auto vocab_size = static_cast<size_t>(options_.vocab_size);
  size_t row = 0;
  std::chrono::milliseconds delay{0};
  for (const StepItem& item : items) {
    auto& sequence = *static_cast<Sequence*>(item.sequence);
    sequence.Append(item.tokens);
    times_left_ += static_cast<int>(std::erase_if(
        sequence.asked(), [&](int64_t length) { return length <= std::ssize(sequence.tokens()); }));
    if (item.wants_logits)
      delay = std::max(delay, FillLogits(sequence, logits.subspan(row++ * vocab_size, vocab_size)));
  }
  MILLRACE_CHECK(row * vocab_size == logits.size(), "the engine asked for other logits than it listed");
  lock.unlock();
  std::this_thread::sleep_for(delay);
}

}  // namespace millrace::engine
