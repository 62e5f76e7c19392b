#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace millrace::engine {

class TokenConstraint;

// The most alternatives one token may list.
inline constexpr int kMaxLogprobs = 20;

// What is added to a token's logit.
struct LogitBias {
  TokenId token = 0;
  float bias = 0;  // [-100, 100]
};

// How the next token is chosen. Names and meanings are those of the OpenAI API and of vLLM.
struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy (lowest id on ties)
  float top_p = 1.0f;        // (0, 1]
  int32_t top_k = 0;         // 0: off
  float min_p = 0.0f;        // [0, 1]
  // The noise of position p is a function of (seed, p) alone: it never depends on batch, chunk or arrival.
  uint64_t seed = 0;
  int64_t max_tokens = 0;  // > 0; the caller has bounded it by the context
  // Sampling one of these ends the generation with kStop; the token is reported as the last token.
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  // Before so many tokens are generated none is chosen that ends the generation. From 0 to max_tokens.
  int64_t min_tokens = 0;
  float presence_penalty = 0.0f;      // [-2, 2]; taken once from the logit of every token generated so far
  float frequency_penalty = 0.0f;     // [-2, 2]; taken for each time that the token was generated
  float repetition_penalty = 1.0f;    // > 0; divides positive logits of tokens of prompt and answer,
                                      // multiplies negative ones; 1: off
  std::vector<LogitBias> logit_bias;  // biases of one token add up
  // Every sequence runs under a Clone() of its own; nullptr: free. See token_constraint.h.
  std::shared_ptr<const TokenConstraint> constraint;
  // How many alternatives each TokenEvent lists, 0 to kMaxLogprobs; nullopt: no logprobs at all.
  std::optional<int> logprobs;
};

enum class FinishReason : uint8_t {
  kStop,        // an end token, a stop token, or the constraint's word
  kLength,      // max_tokens or the context
  kRepetition,  // nothing but a phrase repeated: EngineOptions::repetition_limit_tokens
  kTimeout,     // its deadline, or EngineOptions::max_queue_seconds
  kCancelled,
  kError,
};

// "stop", "length", "repetition", "timeout", "cancelled", "error".
std::string_view FinishReasonName(FinishReason reason);

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // natural log of the probability at temperature 1, before any filter
};

struct TokenEvent {
  TokenId token = 0;
  std::optional<TokenLogprob> chosen;  // when SamplingParams::logprobs is set
  std::vector<TokenLogprob> top;       // best first
};

// When a request passed its stations, in seconds since it was submitted; those it never reached are 0.
struct RequestTimes {
  double admitted = 0;  // left the queue
  double first_token = 0;
  double finished = 0;
};

struct FinishEvent {
  FinishReason reason{};
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens that were not computed because a cache held them
  int64_t generated_tokens = 0;
  RequestTimes times;
  std::optional<Error> error;  // with kError and kTimeout
};

// Receives one request's results. Called on the engine's thread, in order, OnFinish last and exactly once:
// calls must return at once (post to your own thread) and must not call the engine back synchronously.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void OnToken(const TokenEvent& event) = 0;
  virtual void OnFinish(const FinishEvent& event) = 0;
};

struct GenerationRequest {
  std::string request_id;  // for logs
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  // When it must have ended: later it ends with kTimeout, within one step.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  // When its client asked, from where it counts its time; nullopt: when it was submitted.
  std::optional<std::chrono::steady_clock::time_point> arrival = {};
};

// Whether the history of a sequence matters for its next token.
bool UsesPenalties(const SamplingParams& sampling);

// kInvalidArgument naming the field, its value and what is accepted; API clients read these texts.
Status ValidateSampling(const SamplingParams& sampling, int64_t vocab_size);
// At least one token, room for one more within `max_model_len`, every id in [0, vocab_size).
Status ValidatePrompt(std::span<const TokenId> prompt, int64_t vocab_size, int64_t max_model_len);

}  // namespace millrace::engine
