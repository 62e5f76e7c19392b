#include "app/terminal_session.h"

#include <fmt/format.h>
#include <poll.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "app/check_tokenizer.h"
#include "app/forward_flags.h"
#include "app/token_queue.h"
#include "base/log.h"
#include "base/seconds.h"

namespace millrace::app {
namespace {

using Clock = std::chrono::steady_clock;

// Blocks until the queue has something or Ctrl-C comes.
Status WaitForEither(int queue_fd, int interrupt_fd) {
  pollfd watched[2] = {{.fd = queue_fd, .events = POLLIN, .revents = 0},
                       {.fd = interrupt_fd, .events = POLLIN, .revents = 0}};
  while (poll(watched, 2, -1) < 0) {
    if (errno != EINTR) {
      return Error(ErrorCode::kIo, fmt::format("cannot wait for tokens: {}", std::strerror(errno)));
    }
  }
  return {};
}

}  // namespace

void AddTerminalFlags(CLI::App& command, TerminalFlags& flags) {
  command.add_option("checkpoint", flags.checkpoint, "Checkpoint directory")->required();
  command.add_option("--max-tokens", flags.max_tokens, "Tokens of an answer at most")
      ->check(CLI::PositiveNumber);
  command.add_option("--temperature", flags.temperature, "0 always takes the most probable token")
      ->capture_default_str();
  command.add_option("--top-p", flags.top_p, "Draw from the most probable tokens with this share in all")
      ->capture_default_str();
  command.add_option("--top-k", flags.top_k, "Draw from this many most probable tokens, 0 for all")
      ->capture_default_str();
  command.add_option("--min-p", flags.min_p, "Drop tokens less probable than this share of the best one's")
      ->capture_default_str();
  command.add_option("--seed", flags.seed, "Of the draws; the same seed gives the same answer");
  command.add_option("--stop", flags.stop, "Text that ends the answer and is not shown; repeatable")
      ->allow_extra_args(false);
  command.add_option("--threads", flags.threads, "Threads, 0 for one a processor")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  AddLateLayersFlag(command, flags.late_layers);
  AddNumericsFlag(command, flags.numerics);
  command.add_option("--max-model-len", flags.max_model_len,
                     "Tokens of prompt and answer together (default: the checkpoint's limit)");
  command.add_option("--log-level", flags.log_level, "trace, debug, info, warning, error or off")
      ->capture_default_str();
}

std::string SummaryLine(const TerminalAnswer& answer) {
  const int64_t n = answer.usage.completion_tokens;
  const double decode_seconds = answer.seconds - answer.first_token_seconds;
  const double rate = n > 1 && decode_seconds > 0 ? static_cast<double>(n - 1) / decode_seconds : 0;
  return fmt::format(
      "prompt {} tokens, generated {} tokens in {:.2f} s ({:.1f} tok/s), ttft {:.3f} s, {}, seed {}",
      answer.usage.prompt_tokens, n, answer.seconds, rate, answer.first_token_seconds,
      engine::FinishReasonName(answer.reason), answer.seed);
}

Result<std::unique_ptr<TerminalSession>> TerminalSession::Open(const TerminalFlags& flags) {
  MILLRACE_RETURN_IF_ERROR(SetUpLog(flags.log_level));
  MILLRACE_ASSIGN_OR_RETURN(InterruptSignal interrupt, InterruptSignal::Block());
  engine::LoadOptions options;
  options.threads = flags.threads;
  options.stepper.max_num_seqs = 1;
  options.stepper.max_model_len = flags.max_model_len;
  options.stepper.late_layers = flags.late_layers;
  options.stepper.numerics = flags.numerics;
  MILLRACE_ASSIGN_OR_RETURN(engine::LoadedModel loaded, engine::LoadStepModel(flags.checkpoint, options));
  MILLRACE_ASSIGN_OR_RETURN(text::Tokenizer tokenizer, text::Tokenizer::Load(flags.checkpoint));
  MILLRACE_RETURN_IF_ERROR(CheckTokenizer(tokenizer, loaded.checkpoint->config()));
  return std::unique_ptr<TerminalSession>(
      new TerminalSession(std::move(interrupt), std::move(tokenizer), std::move(loaded), flags));
}

TerminalSession::TerminalSession(InterruptSignal interrupt, text::Tokenizer tokenizer,
                                 engine::LoadedModel loaded, const TerminalFlags& flags)
    : interrupt_(std::move(interrupt)),
      tokenizer_(std::move(tokenizer)),
      loaded_(std::move(loaded)),
      engine_(std::move(loaded_.model), {.max_num_seqs = 1}, loaded_.ledger.get()),
      stop_(flags.stop),
      max_tokens_(flags.max_tokens),
      next_seed_(flags.seed ? *flags.seed : std::random_device()()) {
  sampling_.temperature = flags.temperature;
  sampling_.top_p = flags.top_p;
  sampling_.top_k = flags.top_k;
  sampling_.min_p = flags.min_p;
}

Result<TerminalAnswer> TerminalSession::Answer(std::vector<TokenId> prompt,
                                               std::optional<api::ParseOptions> parse,
                                               FunctionRef<void(const api::TextDelta&)> show) {
  TerminalAnswer answer;
  answer.seed = next_seed_++;
  const int64_t room = engine_.max_model_len() - static_cast<int64_t>(prompt.size());
  engine::GenerationRequest request;
  request.request_id = "terminal";
  request.prompt = std::move(prompt);
  request.sampling = sampling_;
  request.sampling.seed = answer.seed;
  request.sampling.max_tokens = max_tokens_.value_or(std::max<int64_t>(room, 1));
  api::GenerationOptions text;
  text.parse = std::move(parse);
  text.stop = stop_;
  api::Generation generation(tokenizer_, std::move(text));
  const auto take = [&](const api::TextDelta& delta) {
    answer.reasoning += delta.reasoning;
    answer.content += delta.content;
    if (!delta.empty()) show(delta);
  };

  const Clock::time_point start = Clock::now();
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<TokenQueue> queue, TokenQueue::Create());
  interrupt_.Take();  // one from before the question is not about this answer
  MILLRACE_ASSIGN_OR_RETURN(const SeqId id, engine_.Submit(std::move(request), queue));
  std::optional<engine::FinishEvent> finish;
  while (!finish) {
    MILLRACE_RETURN_IF_ERROR(WaitForEither(queue->fd(), interrupt_.fd()));
    if (interrupt_.Take()) engine_.Cancel(id);
    TokenQueue::Taken taken = queue->Take();
    for (const engine::TokenEvent& event : taken.tokens) take(generation.OnToken(event));
    if (generation.stopped()) engine_.Cancel(id);
    finish = std::move(taken.finish);
  }
  if (finish->error) return *finish->error;
  take(generation.OnFinish(*finish));
  const TokenQueue::Times times = queue->times();
  answer.first_token_seconds = Seconds(times.first - start);
  answer.seconds = Seconds(times.last - start);
  answer.reason = generation.stopped() ? engine::FinishReason::kStop : finish->reason;
  answer.usage = generation.usage();
  return answer;
}

}  // namespace millrace::app
