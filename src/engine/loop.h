#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/byte_budget.h"
#include "base/ids.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "engine/request_log.h"
#include "engine/sampler.h"
#include "engine/schedule.h"
#include "engine/stats_board.h"
#include "engine/step_model.h"
#include "engine/step_planner.h"
#include "engine/token_constraint.h"
#include "engine/token_history.h"

namespace millrace::engine {

// That a request in the queue waits for a sequence that reads what its prompt begins with.
struct PromptWait {
  std::optional<SeqId> reader = std::nullopt;
  SharedReading shared = {};  // with the reader
  // From the first wait on: one of the slots is its own, and only its deadline ends it.
  bool has_slot = false;
};

// A validated request on its way to a slot.
struct QueuedRequest {
  SeqId id;
  GenerationRequest request;
  std::shared_ptr<TokenSink> sink;
  std::chrono::steady_clock::time_point submitted;
  // The choices of one request share it; nullptr: it is in `request`, until it is enqueued. Let go of once
  // the sequence has begun.
  std::shared_ptr<const std::vector<TokenId>> prompt = nullptr;
  // What the lists of `request` take, of all its choices, until the last of them has ended.
  std::shared_ptr<const ByteReservation> lists = nullptr;
  PromptWait wait = {};
};

// All sequences, waiting and running, and what a step does to them: make room, admit, schedule, run, sample,
// deliver.
//
// Sequences get their slots in the order of their ids. One begins when the model has memory for the tokens it
// begins with, and grows as it goes. One whose prompt begins like one that is being read just now keeps its
// slot free until that has read what they share, and lets others pass into other slots; when the reader
// leaves before, the first that waited for it reads. When one cannot grow, or has waited for its reader and
// does not fit beside later ones, the last in order is preempted: it gives up its state and waits, in front
// of those that never had a slot, until a sequence has left. It goes on exactly where it was, mostly from
// what the model's cache has kept of it. The first is never preempted, so that there is always one that
// comes to its end. One thread. Engine puts a thread and a mailbox around it.
class Loop {
 public:
  // `board` outlives the loop.
  Loop(std::unique_ptr<StepModel> model, const EngineOptions& options, StatsBoard& board);
  // The queue and the slots are empty: CancelAll was called or everything finished.
  ~Loop();

  const StepModel& model() const { return *model_; }
  bool idle() const { return queue_.empty() && preempted_.empty() && running_.empty(); }

  void Enqueue(QueuedRequest request);
  void Cancel(SeqId id);
  void CancelAll();

  // Admits what fits and runs one batch.
  void Step();

 private:
  using Clock = std::chrono::steady_clock;

  struct Running {
    explicit Running(QueuedRequest request)
        : queued(std::move(request)), prompt_tokens(std::ssize(*queued.prompt)) {}

    QueuedRequest queued;
    std::unique_ptr<StepSequence> state = nullptr;
    TokenHistory* history = nullptr;  // one of histories_, with `state`
    std::unique_ptr<TokenConstraint> constraint = nullptr;
    NextToken allowed = AnyToken{};  // the constraint's word for the next draw; views into it
    std::vector<TokenId> tokens;     // prompt and generated, once begun; has room for all that may come
    int64_t prompt_tokens = 0;
    int64_t seen = 0;                                     // tokens that the model's state holds
    int64_t begun_with = 0;                               // tokens that its state was begun with
    std::optional<int64_t> cached_tokens = std::nullopt;  // when it was first admitted
    RequestTimes times = {};
    // Set when the sequence leaves at the end of the step.
    std::optional<FinishReason> finished = std::nullopt;
    std::optional<Error> error = std::nullopt;

    const SamplingParams& sampling() const { return queued.request.sampling; }
    bool begun() const { return !tokens.empty(); }
    int64_t generated() const { return begun() ? std::ssize(tokens) - prompt_tokens : 0; }
    // Tokens that the model has to see before it can give logits.
    int64_t tokens_left() const { return std::ssize(tokens) - seen; }
    // Reads what it was begun with, not yet what it generates.
    bool reads() const { return seen < begun_with; }
  };

  // Ends whatever is past its deadline or has waited too long for a slot.
  void EndOverdue();
  void Admit();
  // Gives the next in order its slot, to begin or to wait for a reader. False: it gets none now.
  bool AdmitNext();
  bool HasFreeSlot() const;
  // Ends the waits for readers that have read so far, or have left. Readers leave tails for the others alone.
  void EndWaits();
  void EndWait(QueuedRequest& request);
  // Whether the request, which has a slot or can have one, waits for a reader: for the one that saves it
  // most, if any does and it does not begin later for that.
  bool WaitsForReader(QueuedRequest& request);
  Running* Find(SeqId id);  // among those that run
  // Rows of what others wait for come as early as those would.
  void PassOnPriority();
  // Gives the sequence state, at the cost of those behind it in order. False: there is no room for it now.
  // What else goes wrong ends it.
  bool Begin(Running& sequence);
  bool TryBegin(Running& sequence);  // at nobody's cost
  // Gives a sequence with state its history and its constraint.
  Status BeginTokens(Running& sequence);
  // Sees to it that every running sequence can take the tokens it has.
  void MakeRoom();
  // The last running sequence gives up its state.
  void PreemptLast();
  // Whether trying to admit is in vain: nothing has left, and no page has come free, since that did not help.
  bool PoolStaysFull();
  // Gives a sequence that begins for the first time room for its tokens, its prompt in it.
  void TakePrompt(Running& sequence);
  // Takes the sequence's state and history away.
  void GiveUpState(Running& sequence);
  // Fills batch_ and items_; returns how many items want logits.
  size_t BuildBatch();
  StepShape DescribeBatch() const;
  // Moves every sequence of the batch on: what the model has seen, and a token where there are logits.
  void Advance();
  // Takes the sequence's next token, or run of tokens, and decides whether it goes on.
  void TakeTokens(Running& sequence, std::span<const float> logits);
  Status Sample(Running& sequence, std::span<const float> logits);
  // Delivers event_ as the sequence's next token; sets `finished` when it is the last.
  Status TakeToken(Running& sequence);
  // Asks the constraint what may come next, and takes the runs that it forces.
  Status AskConstraint(Running& sequence);
  std::optional<FinishReason> ReasonToEnd(const Running& sequence, TokenId token) const;
  static void Fail(Running& sequence, const Error& error);
  static void TimeOut(Running& sequence, Error error);
  void FailBatch(const Error& error);
  void RemoveFinished();
  // Frees the slot (`sequence.state` is set) or the place in the queue, counts, logs, tells the sink.
  void Leave(Running sequence);

  std::unique_ptr<StepModel> model_;
  EngineOptions options_;
  StatsBoard& board_;
  // Each in order of ids. Those that run are before all that are preempted, those of the queue without a slot
  // behind all others; together never more than max_num_seqs have one.
  std::deque<QueuedRequest> queue_;
  std::deque<Running> preempted_;
  std::vector<Running> running_;
  bool pool_full_ = false;  // the next to be admitted did not fit, with as many tokens in use as follows
  int64_t full_at_tokens_ = 0;
  StepPlanner planner_;

  // Scratch of one step, at its final size from the start.
  std::vector<ScheduleRow> rows_;
  std::vector<ScheduleSlice> batch_;
  std::vector<StepItem> items_;
  std::vector<float> logits_;  // [max_num_seqs, vocab_size]
  Sampler sampler_;
  TokenEvent event_;

  std::vector<TokenHistory> histories_;  // [max_num_seqs]
  std::vector<TokenHistory*> free_histories_;
  std::vector<std::vector<TokenId>> free_tokens_;  // room for a sequence of full length each

  // Scratch of one token, as long as its request makes it.
  std::vector<TokenId> withheld_;  // before min_tokens
  std::vector<TokenId> forced_;    // a run
};

}  // namespace millrace::engine
