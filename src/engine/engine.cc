#include "engine/engine.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/byte_budget.h"
#include "base/units.h"
#include "engine/loop.h"

namespace millrace::engine {
namespace {

struct CancelOne {
  SeqId id;
};
struct CancelEverything {};

using Message = std::variant<QueuedRequest, CancelOne, CancelEverything>;

// Messages from any thread to the engine's.
class Mailbox {
 public:
  void Send(Message message) {
    std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
    arrived_.notify_one();
  }

  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    arrived_.notify_one();
  }

  // Swaps the messages that have arrived into `messages`; with `wait`, blocks until there is one or the box
  // is closed. False once the box is closed.
  bool Take(bool wait, std::vector<Message>& messages) {
    messages.clear();
    std::unique_lock lock(mutex_);
    if (wait) arrived_.wait(lock, [this] { return closed_ || !messages_.empty(); });
    messages_.swap(messages);
    return !closed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Message> messages_;  // guarded by mutex_
  bool closed_ = false;            // guarded by mutex_
};

// A prompt and its memory, for as long as a sequence that has not begun holds it.
std::shared_ptr<const std::vector<TokenId>> WithMemory(std::vector<TokenId> prompt, ByteReservation memory) {
  struct Holder {
    std::vector<TokenId> prompt;
    ByteReservation memory;
  };
  const auto holder = std::make_shared<Holder>(Holder{std::move(prompt), std::move(memory)});
  return {holder, &holder->prompt};
}

// What a request takes while it waits: its prompt once, its lists for every sequence, and these until it
// ends.
uint64_t PromptBytesOf(const GenerationRequest& request) {
  return request.prompt.size() * sizeof(TokenId);
}
uint64_t ListBytesOf(const GenerationRequest& request, size_t sequences) {
  const SamplingParams& sampling = request.sampling;
  return sequences *
         (sampling.logit_bias.size() * sizeof(LogitBias) + sampling.stop_token_ids.size() * sizeof(TokenId));
}

}  // namespace

struct Engine::Impl {
  Impl(std::unique_ptr<StepModel> model, EngineOptions engine_options, MemoryLedger* ledger)
      : options(engine_options),
        vocab_size(model->vocab_size()),
        max_model_len(model->max_model_len()),
        loop(std::move(model), engine_options, board),
        held(
            std::vector<PlannedMemory>{
                {"logits and sampling", LogitsAndSamplingBytes(vocab_size, options.max_num_seqs)},
                {"sequence tokens", SequenceTokenBytes(max_model_len, options.max_num_seqs)}},
            ledger),
        watchdog(board, engine_options.watchdog) {
    const uint64_t prompt_bytes = PromptBytes(max_model_len, options);
    prompts = ByteBudget::Create(prompt_bytes);
    if (ledger != nullptr) prompts->SetAccount(ledger->Open("prompts", prompt_bytes));
    thread = std::thread([this] { Run(); });
  }

  ~Impl() {
    mailbox.Close();
    thread.join();
  }

  void Run() {
    std::vector<Message> messages;
    bool open = true;
    while (open) {
      open = mailbox.Take(/*wait=*/loop.idle(), messages);
      for (Message& message : messages) Handle(std::move(message));
      if (open) loop.Step();
    }
    loop.CancelAll();
  }

  void Handle(Message message) {
    if (auto* request = std::get_if<QueuedRequest>(&message)) {
      loop.Enqueue(std::move(*request));
    } else if (const auto* cancel = std::get_if<CancelOne>(&message)) {
      loop.Cancel(cancel->id);
    } else {
      loop.CancelAll();
    }
  }

  const EngineOptions options;
  const int64_t vocab_size;
  const int64_t max_model_len;
  StatsBoard board;
  Mailbox mailbox;

  // Orders ids, the place in the queue and the message of a Submit, and shuts the door for Drain.
  std::mutex submit_mutex;
  uint64_t next_id = 1;   // guarded by submit_mutex
  bool draining = false;  // guarded by submit_mutex

  std::shared_ptr<ByteBudget> prompts;

  Loop loop;  // the thread's alone
  HeldMemory held;
  Watchdog watchdog;
  std::thread thread;
};

uint64_t PromptBytes(int64_t max_model_len, const EngineOptions& options) {
  constexpr uint64_t kMeanWaitingTokens = 16384;
  return (static_cast<uint64_t>(options.max_num_seqs) * static_cast<uint64_t>(max_model_len) +
          static_cast<uint64_t>(options.max_queue) * kMeanWaitingTokens) *
         sizeof(TokenId);
}

uint64_t SequenceTokenBytes(int64_t max_model_len, int max_num_seqs) {
  return static_cast<uint64_t>(max_num_seqs) * static_cast<uint64_t>(max_model_len) * sizeof(TokenId);
}

uint64_t LogitsAndSamplingBytes(int64_t vocab_size, int max_num_seqs) {
  const uint64_t row = static_cast<uint64_t>(vocab_size) * sizeof(float);
  return static_cast<uint64_t>(max_num_seqs) * (row + TokenHistory::Bytes(vocab_size)) +
         Sampler::ScratchBytes(vocab_size);
}

Engine::Engine(std::unique_ptr<StepModel> model, EngineOptions options, MemoryLedger* ledger)
    : impl_(std::make_unique<Impl>(std::move(model), options, ledger)) {}

Engine::~Engine() = default;

int64_t Engine::max_model_len() const {
  return impl_->max_model_len;
}

int Engine::capacity() const {
  return impl_->options.max_num_seqs + impl_->options.max_queue;
}

int64_t Engine::vocab_size() const {
  return impl_->vocab_size;
}

uint64_t Engine::prompt_bytes() const {
  return PromptBytes(impl_->max_model_len, impl_->options);
}

Result<SeqId> Engine::Submit(GenerationRequest request, std::shared_ptr<TokenSink> sink) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<SeqId> ids, SubmitChoices(std::move(request), {&sink, 1}));
  return ids.front();
}

Result<std::vector<SeqId>> Engine::SubmitChoices(GenerationRequest request,
                                                 std::span<const std::shared_ptr<TokenSink>> sinks) {
  MILLRACE_RETURN_IF_ERROR(ValidatePrompt(request.prompt, impl_->vocab_size, impl_->max_model_len));
  MILLRACE_RETURN_IF_ERROR(ValidateSampling(request.sampling, impl_->vocab_size));
  std::lock_guard lock(impl_->submit_mutex);
  if (impl_->draining) {
    return Error(ErrorCode::kUnavailable, "the server is shutting down and takes no new requests");
  }
  const EngineOptions& options = impl_->options;
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const uint64_t list_bytes = ListBytesOf(request, sinks.size());
  const uint64_t waiting_bytes = PromptBytesOf(request) + list_bytes;
  if (waiting_bytes > prompt_bytes()) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("the prompt and the lists of its {} choices (logit_bias, stop_token_ids) take {}, "
                    "and this server has {} for those of all that waits; lower n or shorten the lists",
                    sinks.size(), HumanBytes(waiting_bytes), HumanBytes(prompt_bytes())));
  }
  std::optional<ByteReservation> memory = impl_->prompts->Reserve(waiting_bytes - list_bytes);
  std::optional<ByteReservation> list_memory = impl_->prompts->Reserve(list_bytes);
  if (!memory || !list_memory) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("the prompts of waiting requests fill the {} set aside for them, {} "
                             "more tokens do not fit; try again later",
                             HumanBytes(prompt_bytes()), prompt_tokens));
  }
  if (!impl_->board.TryJoinQueue(capacity(), prompt_tokens, static_cast<int>(sinks.size()))) {
    return Error(
        ErrorCode::kResourceExhausted,
        fmt::format("the queue is full: it has no place for {} more beside those that run or wait ({} slots, "
                    "{} places in the queue); try again later",
                    sinks.size(), options.max_num_seqs, options.max_queue));
  }
  const auto prompt = WithMemory(std::move(request.prompt), *std::move(memory));
  request.prompt = {};
  const auto lists = std::make_shared<const ByteReservation>(*std::move(list_memory));
  std::vector<SeqId> ids;
  for (const std::shared_ptr<TokenSink>& sink : sinks) {
    const SeqId id = ids.emplace_back(SeqId{impl_->next_id++});
    impl_->mailbox.Send(QueuedRequest{id, request, sink, std::chrono::steady_clock::now(), prompt, lists});
    ++request.sampling.seed;
  }
  return ids;
}

void Engine::Cancel(SeqId id) {
  impl_->mailbox.Send(CancelOne{id});
}

EngineStats Engine::stats() const {
  EngineStats stats = impl_->board.Snapshot();
  stats.stuck = IsStuck(stats, impl_->options.watchdog);
  return stats;
}

void Engine::Drain(std::chrono::steady_clock::time_point deadline) {
  {
    std::lock_guard lock(impl_->submit_mutex);
    impl_->draining = true;
  }
  if (impl_->board.WaitUntilIdle(deadline)) return;
  impl_->mailbox.Send(CancelEverything{});
  impl_->board.WaitUntilIdle(std::nullopt);
}

}  // namespace millrace::engine
