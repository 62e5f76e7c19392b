#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/generation.h"
#include "app/interrupt_signal.h"
#include "base/function_ref.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "text/tokenizer.h"

namespace CLI {
class App;
}

namespace millrace::app {

// The flags that the commands which answer on the terminal share.
struct TerminalFlags {
  std::string checkpoint;
  std::optional<int64_t> max_tokens;  // nullopt: to the end of the context
  float temperature = 1.0f;
  float top_p = 1.0f;
  int32_t top_k = 0;
  float min_p = 0.0f;
  std::optional<uint64_t> seed;  // nullopt: a new one for each run
  std::vector<std::string> stop;
  int threads = 0;
  model::LateLayers late_layers = model::LateLayers::kNeeded;
  model::Numerics numerics = engine::StepperOptions().numerics;
  std::optional<int64_t> max_model_len;
  std::string log_level = "warning";
};

void AddTerminalFlags(CLI::App& command, TerminalFlags& flags);

// What became of one answer.
struct TerminalAnswer {
  std::string reasoning;
  std::string content;
  engine::FinishReason reason{};  // kCancelled: Ctrl-C
  api::TokenUsage usage;
  uint64_t seed = 0;
  double seconds = 0;
  double first_token_seconds = 0;
};

// "prompt 12 tokens, generated 34 tokens in 1.20 s (28.3 tok/s), ttft 0.05 s, stop, seed 7". The rate counts
// the tokens after the first.
std::string SummaryLine(const TerminalAnswer& answer);

// A loaded model for one user at a terminal: an engine with one slot, run from the calling thread.
class TerminalSession {
 public:
  // Sets up the log, blocks SIGINT for the session's life, loads. Errors name the flag or the file.
  static Result<std::unique_ptr<TerminalSession>> Open(const TerminalFlags& flags);

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  InterruptSignal& interrupt() { return interrupt_; }

  // Answers `prompt`; `show` gets what is new, as it comes. Ctrl-C cancels the answer. An error when the
  // request is refused or its generation fails.
  Result<TerminalAnswer> Answer(std::vector<TokenId> prompt, std::optional<api::ParseOptions> parse,
                                FunctionRef<void(const api::TextDelta&)> show);

 private:
  TerminalSession(InterruptSignal interrupt, text::Tokenizer tokenizer, engine::LoadedModel loaded,
                  const TerminalFlags& flags);

  InterruptSignal interrupt_;  // first: blocks before the threads below start
  text::Tokenizer tokenizer_;
  engine::LoadedModel loaded_;
  engine::Engine engine_;
  engine::SamplingParams sampling_;  // but seed and max_tokens
  std::vector<std::string> stop_;
  std::optional<int64_t> max_tokens_;
  uint64_t next_seed_;  // of the next answer; the first has the flag's
};

}  // namespace millrace::app
