#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/step_model.h"

namespace millrace::engine {

struct ScriptedModelOptions {
  int64_t vocab_size = 256;
  TokenId eos_token_id = 1;
  int64_t max_model_len = 4096;
  int64_t max_batch_tokens = 64;
  // Tokens that sequences may have reserved at once; NewSequence and Reserve answer kResourceExhausted
  // beyond.
  int64_t pool_tokens = INT64_MAX;
  // Sequences begin behind whatever begins like one that has ended.
  bool reuse_prefixes = false;
  // Tokens of a page; when not 0, sequences also begin behind the whole pages of those that run and begin
  // alike.
  int64_t page_tokens = 0;
  std::chrono::microseconds step_delay{0};
  std::chrono::microseconds token_delay{0};  // for each token of a step
  std::chrono::microseconds step_period{0};  // from the beginning of a step to that of the next, at least
  bool record_steps = true;                  // false: recorded_steps stays empty, for long runs
};

// A StepModel for tests that plays answers written beforehand: the logits are one-hot, so that greedy and
// ordinary sampling pick the scripted token. After a script's end comes EOS, for ever.
//
// Scripts and faults are set up by any thread at any time. Faults hold from the next step on, scripts for the
// sequences that have not wanted logits yet. The record can be read at any time.
class ScriptedModel : public StepModel {
 public:
  // What one item of a Step was.
  struct RecordedItem {
    uint64_t sequence = 0;  // counts NewSequence calls from 1
    std::vector<TokenId> tokens;
    bool wants_logits = false;
  };
  using RecordedStep = std::vector<RecordedItem>;
  // Fills `logits` [vocab_size] from all tokens of the sequence so far.
  using LogitsFn = std::function<void(std::span<const TokenId> prefix, std::span<float> logits)>;
  struct Script {
    std::vector<TokenId> answer;
    std::chrono::milliseconds prefill_delay{0};  // by how much the prompt's last step takes longer
  };
  using ScriptFn = std::function<std::optional<Script>(std::span<const TokenId> prompt)>;

  explicit ScriptedModel(ScriptedModelOptions options = {});
  ~ScriptedModel() override;

  // The answer to exactly this prompt, or to every prompt without one of its own.
  void Play(std::vector<TokenId> prompt, std::vector<TokenId> answer);
  void PlayByDefault(std::vector<TokenId> answer);
  // Chooses the answer to a prompt without one of its own, in front of the default; called on the engine's
  // thread.
  void ChooseScripts(ScriptFn fn);
  // Replaces scripts by a function of the whole prefix; called on the engine's thread.
  void ComputeLogits(LogitsFn fn);

  // The next `n` steps throw std::runtime_error("scripted failure").
  void FailSteps(int n);
  // The next `n` NewSequence calls return `error`.
  void FailNewSequence(int n, Error error);

  // Steps block at their beginning until AllowSteps has allowed them or ReleaseSteps has ended the hold.
  void HoldSteps();
  void AllowSteps(int n);
  void ReleaseSteps();
  // Returns when a step has been blocked by the hold, or after `timeout`: true when one is.
  bool WaitUntilHeld(std::chrono::milliseconds timeout = std::chrono::seconds(20));

  std::vector<RecordedStep> recorded_steps() const;
  int64_t reserved_tokens() const;
  int live_sequences() const;
  // How often a sequence that LeaveFor asked has read so far and left what was asked.
  int times_left() const;

  int64_t vocab_size() const override { return options_.vocab_size; }
  TokenId eos_token_id() const override { return options_.eos_token_id; }
  int64_t max_model_len() const override { return options_.max_model_len; }
  int64_t max_batch_tokens() const override { return options_.max_batch_tokens; }
  Result<StartedSequence> NewSequence(std::span<const TokenId> tokens) override;
  Status Reserve(StepSequence& sequence, int64_t length) override;
  std::optional<SharedReading> WorthWaiting(const StepSequence& reader, std::span<const TokenId> tokens,
                                            int64_t common) const noexcept override;
  void LeaveFor(StepSequence& reader, int64_t n_tokens, int64_t length) noexcept override;
  void ForgetAsked(StepSequence& reader) noexcept override;
  void Step(std::span<const StepItem> items, std::span<float> logits) override;

 private:
  class Sequence;

  void WaitForPermission(std::unique_lock<std::mutex>& lock);
  void RecordStep(std::span<const StepItem> items);
  Script ScriptOf(const std::vector<TokenId>& prompt) const;
  // Returns the sequence's delay, once.
  std::chrono::milliseconds FillLogits(Sequence& sequence, std::span<float> logits);
  Status TakeTokens(int64_t n);
  int64_t ReusableTokens(std::span<const TokenId> tokens) const;
  void OnSequenceEnd(Sequence& sequence);

  const ScriptedModelOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::map<std::vector<TokenId>, std::vector<TokenId>> scripts_;
  std::vector<TokenId> default_script_;
  ScriptFn script_fn_;
  LogitsFn logits_fn_;
  int steps_to_fail_ = 0;
  int sequences_to_fail_ = 0;
  Error sequence_error_{ErrorCode::kUnavailable, ""};
  bool hold_ = false;
  bool blocked_ = false;
  int allowed_steps_ = 0;
  std::vector<RecordedStep> recorded_;
  int64_t reserved_tokens_ = 0;
  std::vector<Sequence*> live_;
  uint64_t sequences_made_ = 0;
  int times_left_ = 0;
  std::vector<std::vector<TokenId>> ended_;  // with reuse_prefixes

  std::chrono::steady_clock::time_point next_step_{};  // the engine's thread's
};

}  // namespace millrace::engine
