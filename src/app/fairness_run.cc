#include "app/fairness_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "base/units.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "model/checkpoint.h"
#include "model/sequence_state.h"

namespace millrace::app {
namespace {

// Nothing here takes as long; a wait that does has lost its engine.
constexpr std::chrono::hours kForever{24};

// Seconds since some moment, by the clock or of the processors that the process was given.
class RunClock {
 public:
  explicit RunClock(const FairnessOptions& options)
      : processor_(options.by_processor_time),
        threads_(options.threads > 0 ? options.threads : engine::UsableProcessors()) {}

  double Now() const {
    timespec time{};
    clock_gettime(processor_ ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    const double seconds = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    return processor_ ? seconds / threads_ : seconds;
  }

 private:
  bool processor_;
  int threads_;
};

// When a sequence's tokens came. Any thread.
class TimedSink final : public engine::TokenSink {
 public:
  explicit TimedSink(const RunClock& clock) : clock_(clock) {}

  void OnToken(const engine::TokenEvent&) override {
    const std::lock_guard lock(mutex_);
    times_.push_back(clock_.Now());
    changed_.notify_all();
  }
  void OnFinish(const engine::FinishEvent& event) override {
    const std::lock_guard lock(mutex_);
    finish_ = event;
    changed_.notify_all();
  }

  // An error when the sequence has ended with fewer.
  Status WaitForTokens(size_t n) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, kForever, [&] { return times_.size() >= n || finish_; });
    if (times_.size() >= n) return {};
    if (!came) return Error(ErrorCode::kUnavailable, "a sequence gave no token within a day");
    if (finish_->error) return *finish_->error;
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a stream ended ({}) after {} tokens while it was measured",
                             engine::FinishReasonName(finish_->reason), times_.size()));
  }
  // Whether that many came, or no more will.
  bool HasCome(size_t n) {
    const std::lock_guard lock(mutex_);
    return times_.size() >= n || finish_;
  }
  std::vector<double> times() {
    const std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  const RunClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<double> times_;                  // guarded by mutex_
  std::optional<engine::FinishEvent> finish_;  // guarded by mutex_
};

// Of one stream between two moments: its tokens, and its longest gap, those that reach over the ends
// included.
struct StreamWindow {
  double tokens = 0;
  double longest_gap_s = 0;
};

StreamWindow Measure(const std::vector<double>& times, double begin, double end) {
  StreamWindow window;
  for (size_t i = 0; i < times.size(); ++i) {
    window.tokens += times[i] > begin && times[i] <= end;
    if (i > 0 && times[i] > begin && times[i - 1] <= end)
      window.longest_gap_s = std::max(window.longest_gap_s, (times[i] - times[i - 1]));
  }
  return window;
}

// An engine over the checkpoint with streams that decode.
class Rig {
 public:
  static Result<std::unique_ptr<Rig>> Create(const std::filesystem::path& checkpoint,
                                             const FairnessOptions& options, engine::SchedulePolicy policy,
                                             engine::PaceOptions pace);

  // One stream alone, then all.
  Status StartStreams(FairnessCase& figures);
  // All prompts at once; waits for their first tokens, no longer than the options say.
  Status ReadPrompts(FairnessCase& figures);
  // All streams, then the first alone: `figures` takes the mean of both ends of the run, for a machine that
  // others use does not keep its speed.
  Status EndStreams(FairnessCase& figures);
  Result<double> ShortBehind(int64_t huge_tokens);

 private:
  // What streams may generate. Long enough for whatever is read beside them.
  static constexpr int64_t kStreamTokens = 1 << 20;
  static constexpr int64_t kStreamPrompt = 16;
  // What a rate is measured over, at least.
  static constexpr size_t kMeasuredTokens = 24;

  explicit Rig(const FairnessOptions& options) : options_(options), clock_(options) {}

  struct Started {
    SeqId id;
    std::shared_ptr<TimedSink> sink;
  };
  Result<Started> Start(int64_t prompt_tokens, int64_t max_tokens);
  // Whether all came before `end`, if the options limit the time.
  Result<bool> WaitForPrompts(const std::vector<Started>& prompts, double end);
  std::vector<TokenId> RandomPrompt(int64_t n);
  double SlowestRate(double begin, double end);
  // Of the slowest stream, from now on.
  Result<double> MeasureRate();

  const FairnessOptions options_;
  const RunClock clock_;
  engine::LoadedModel loaded_;
  std::unique_ptr<engine::Engine> engine_;
  std::vector<Started> streams_;
  std::mt19937 random_{1};
};

int64_t LongestPrompt(const FairnessOptions& options) {
  return std::max({options.prompt_tokens, options.huge_prompt_tokens, options.short_prompt_tokens});
}

Result<std::unique_ptr<Rig>> Rig::Create(const std::filesystem::path& checkpoint,
                                         const FairnessOptions& options, engine::SchedulePolicy policy,
                                         engine::PaceOptions pace) {
  std::unique_ptr<Rig> rig(new Rig(options));
  const auto whole_pages = [](int64_t tokens) {
    return static_cast<int64_t>(RoundUp(static_cast<uint64_t>(tokens + 1), model::kPageTokens));
  };
  const int n_seqs = options.streams + std::max(options.prompts, 2);
  // Streams share the pool's rest: what is read beside them bounds how long they run.
  MILLRACE_ASSIGN_OR_RETURN(const model::Checkpoint files, model::Checkpoint::Open(checkpoint));
  const int64_t stream_tokens = std::min({kStreamTokens, files.config().max_position_embeddings,
                                          2 * options.prompts * options.prompt_tokens + 65536});
  const int64_t read_tokens =
      std::max(options.prompts * whole_pages(options.prompt_tokens),
               whole_pages(options.huge_prompt_tokens) + whole_pages(options.short_prompt_tokens));
  engine::LoadOptions load;
  load.threads = options.threads;
  load.stepper.max_model_len = std::max(LongestPrompt(options) + 2, stream_tokens);
  load.stepper.max_num_seqs = n_seqs;
  load.stepper.max_batch_tokens = options.chunk_tokens + n_seqs;
  load.stepper.kv_tokens = options.streams * whole_pages(stream_tokens) + read_tokens;
  load.stepper.numerics = options.numerics;
  MILLRACE_ASSIGN_OR_RETURN(rig->loaded_, engine::LoadStepModel(checkpoint, load));
  rig->engine_ = std::make_unique<engine::Engine>(std::move(rig->loaded_.model),
                                                  engine::EngineOptions{.max_num_seqs = n_seqs,
                                                                        .prefill_chunk = options.chunk_tokens,
                                                                        .schedule_policy = policy,
                                                                        .pace = pace});
  return rig;
}

std::vector<TokenId> Rig::RandomPrompt(int64_t n) {
  std::vector<TokenId> prompt(static_cast<size_t>(n));
  for (TokenId& token : prompt)
    token = static_cast<TokenId>(random_() % static_cast<uint64_t>(engine_->vocab_size()));
  return prompt;
}

Result<Rig::Started> Rig::Start(int64_t prompt_tokens, int64_t max_tokens) {
  engine::GenerationRequest request;
  request.request_id = "bench";
  request.prompt = RandomPrompt(prompt_tokens);
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = max_tokens;
  Started started{.id = {}, .sink = std::make_shared<TimedSink>(clock_)};
  MILLRACE_ASSIGN_OR_RETURN(started.id, engine_->Submit(std::move(request), started.sink));
  return started;
}

double Rig::SlowestRate(double begin, double end) {
  double slowest = 1e300;
  for (const Started& stream : streams_)
    slowest = std::min(slowest, Measure(stream.sink->times(), begin, end).tokens);
  return slowest / (end - begin);
}

Status Rig::StartStreams(FairnessCase& figures) {
  const int64_t max_tokens = engine_->max_model_len() - kStreamPrompt - 1;
  const auto add = [&]() -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Started stream, Start(kStreamPrompt, std::min(max_tokens, kStreamTokens)));
    streams_.push_back(std::move(stream));
    return {};
  };
  MILLRACE_RETURN_IF_ERROR(add());
  MILLRACE_ASSIGN_OR_RETURN(figures.solo_tokens_per_s, MeasureRate());
  while (streams_.size() < static_cast<size_t>(options_.streams)) MILLRACE_RETURN_IF_ERROR(add());
  MILLRACE_ASSIGN_OR_RETURN(figures.undisturbed_tokens_per_s, MeasureRate());
  return {};
}

Result<double> Rig::MeasureRate() {
  for (const Started& stream : streams_) MILLRACE_RETURN_IF_ERROR(stream.sink->WaitForTokens(1));
  TimedSink& first = *streams_.front().sink;
  const size_t before = first.times().size() - 1;
  const double begin = first.times()[before];
  double end = begin;
  for (size_t n = kMeasuredTokens; (end - begin) < options_.measured_s; ++n) {
    MILLRACE_RETURN_IF_ERROR(first.WaitForTokens(before + n + 1));
    n = first.times().size() - 1 - before;
    end = first.times()[before + n];
  }
  return SlowestRate(begin, end);
}

Status Rig::EndStreams(FairnessCase& figures) {
  MILLRACE_ASSIGN_OR_RETURN(const double undisturbed, MeasureRate());
  figures.undisturbed_tokens_per_s = (figures.undisturbed_tokens_per_s + undisturbed) / 2;
  while (streams_.size() > 1) {
    engine_->Cancel(streams_.back().id);
    streams_.pop_back();
  }
  MILLRACE_ASSIGN_OR_RETURN(const double solo, MeasureRate());
  figures.solo_tokens_per_s = (figures.solo_tokens_per_s + solo) / 2;
  return {};
}

Result<bool> Rig::WaitForPrompts(const std::vector<Started>& prompts, double end) {
  const auto waits = [](const Started& prompt) { return !prompt.sink->HasCome(1); };
  while (options_.longest_reading_s > 0 && std::any_of(prompts.begin(), prompts.end(), waits)) {
    if (clock_.Now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (const Started& prompt : prompts) MILLRACE_RETURN_IF_ERROR(prompt.sink->WaitForTokens(1));
  return true;
}

Status Rig::ReadPrompts(FairnessCase& figures) {
  const uint64_t read_before = engine_->stats().prompt_tokens_total;
  const double begin = clock_.Now();
  std::vector<Started> prompts;
  for (int i = 0; i < options_.prompts; ++i) {
    MILLRACE_ASSIGN_OR_RETURN(Started prompt, Start(options_.prompt_tokens, 1));
    prompts.push_back(std::move(prompt));
  }
  MILLRACE_ASSIGN_OR_RETURN(const bool all_read, WaitForPrompts(prompts, begin + options_.longest_reading_s));
  double end = clock_.Now();
  figures.prompt_tokens = static_cast<double>(engine_->stats().prompt_tokens_total - read_before);
  std::vector<double> came;
  for (const Started& prompt : prompts)
    if (const std::vector<double> times = prompt.sink->times(); !times.empty()) came.push_back(times.front());
  if (!came.empty()) figures.first_token_s = *std::min_element(came.begin(), came.end()) - begin;
  if (all_read) {
    end = *std::max_element(came.begin(), came.end());
    figures.prompt_tokens = static_cast<double>(options_.prompts * options_.prompt_tokens);
  }
  figures.reading_s = end - begin;
  // The gap that the last chunk fell into must have ended.
  for (const Started& stream : streams_)
    MILLRACE_RETURN_IF_ERROR(stream.sink->WaitForTokens(stream.sink->times().size() + 1));
  for (const Started& prompt : prompts) engine_->Cancel(prompt.id);
  figures.slowest_tokens_per_s = SlowestRate(begin, end);
  for (const Started& stream : streams_) {
    const StreamWindow window = Measure(stream.sink->times(), begin, end);
    figures.longest_gap_s = std::max(figures.longest_gap_s, window.longest_gap_s);
    figures.stream_tokens_per_s += window.tokens / figures.reading_s;
  }
  return {};
}

Result<double> Rig::ShortBehind(int64_t huge_tokens) {
  // So far into the huge prompt that its chunks have their size.
  constexpr uint64_t kSteps = 30;
  MILLRACE_ASSIGN_OR_RETURN(const Started huge, Start(huge_tokens, 1));
  const uint64_t before = engine_->stats().steps_total;
  while (engine_->stats().steps_total < before + kSteps)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const double begin = clock_.Now();
  MILLRACE_ASSIGN_OR_RETURN(const Started brief, Start(options_.short_prompt_tokens, 1));
  MILLRACE_RETURN_IF_ERROR(brief.sink->WaitForTokens(1));
  const double seconds = (brief.sink->times().front() - begin);
  engine_->Cancel(huge.id);
  return seconds;
}

}  // namespace

Status RunFairness(const std::filesystem::path& checkpoint, const FairnessOptions& options,
                   FunctionRef<void(const FairnessCase&)> on_case,
                   FunctionRef<void(const ShortBehindHuge&)> on_short) {
  using engine::SchedulePolicy;
  const engine::PaceOptions unpaced{.max_gap_seconds = 0, .min_decode_share = 0};
  const std::pair<SchedulePolicy, bool> schedules[] = {
      {SchedulePolicy::kFair, true}, {SchedulePolicy::kFcfs, true}, {SchedulePolicy::kFcfs, false}};
  for (const auto& [policy, paced] : schedules) {
    MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Rig> rig,
                              Rig::Create(checkpoint, options, policy, paced ? options.pace : unpaced));
    FairnessCase figures;
    figures.name = fmt::format("{}{}", SchedulePolicyName(policy), paced ? "" : ", not paced");
    MILLRACE_RETURN_IF_ERROR(rig->StartStreams(figures));
    MILLRACE_RETURN_IF_ERROR(rig->ReadPrompts(figures));
    MILLRACE_RETURN_IF_ERROR(rig->EndStreams(figures));
    on_case(figures);
  }
  if (options.huge_prompt_tokens == 0) return {};
  for (const int64_t huge : {options.huge_prompt_tokens / 4, options.huge_prompt_tokens}) {
    MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Rig> rig,
                              Rig::Create(checkpoint, options, SchedulePolicy::kFair, options.pace));
    FairnessCase figures;
    MILLRACE_RETURN_IF_ERROR(rig->StartStreams(figures));
    MILLRACE_ASSIGN_OR_RETURN(const double seconds, rig->ShortBehind(huge));
    on_short({huge, seconds});
  }
  return {};
}

}  // namespace millrace::app
