#include "engine/request.h"

#include <fmt/format.h>

#include <cmath>

namespace millrace::engine {
namespace {

Error OutOfRange(std::string_view field, std::string_view value, std::string_view accepted) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("{} is {}; it must be {}", field, value, accepted));
}

std::string Number(double value) {
  return fmt::format("{:.6g}", value);
}

// Penalties, biases and what depends on them. Written so that NaN fails every test.
Status ValidateLogitRules(const SamplingParams& sampling, int64_t vocab_size) {
  constexpr std::string_view kPenaltyRange = "from -2 to 2 (0: off)";
  if (!(std::abs(sampling.presence_penalty) <= 2)) {
    return OutOfRange("presence_penalty", Number(sampling.presence_penalty), kPenaltyRange);
  }
  if (!(std::abs(sampling.frequency_penalty) <= 2)) {
    return OutOfRange("frequency_penalty", Number(sampling.frequency_penalty), kPenaltyRange);
  }
  if (!(sampling.repetition_penalty > 0 && std::isfinite(sampling.repetition_penalty))) {
    return OutOfRange("repetition_penalty", Number(sampling.repetition_penalty),
                      "a finite number greater than 0 (1: off)");
  }
  for (const LogitBias& bias : sampling.logit_bias) {
    if (bias.token < 0 || bias.token >= vocab_size) {
      return OutOfRange("logit_bias", fmt::format("{{... {}: {} ...}}", bias.token, Number(bias.bias)),
                        fmt::format("for ids of the vocabulary, 0 to {}", vocab_size - 1));
    }
    if (!(std::abs(bias.bias) <= 100)) {
      return OutOfRange("logit_bias", fmt::format("{{... {}: {} ...}}", bias.token, Number(bias.bias)),
                        "from -100 to 100 for each token");
    }
  }
  if (sampling.min_tokens < 0 || sampling.min_tokens > sampling.max_tokens) {
    return OutOfRange("min_tokens", std::to_string(sampling.min_tokens),
                      fmt::format("from 0 to max_tokens, {}", sampling.max_tokens));
  }
  return {};
}

}  // namespace

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kRepetition:
      return "repetition";
    case FinishReason::kTimeout:
      return "timeout";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

bool UsesPenalties(const SamplingParams& sampling) {
  return sampling.presence_penalty != 0 || sampling.frequency_penalty != 0 ||
         sampling.repetition_penalty != 1;
}

Status ValidateSampling(const SamplingParams& sampling, int64_t vocab_size) {
  // Written so that NaN fails every test.
  if (!(sampling.temperature >= 0 && std::isfinite(sampling.temperature))) {
    return OutOfRange("temperature", Number(sampling.temperature),
                      "a finite number of at least 0 (0: greedy)");
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    return OutOfRange("top_p", Number(sampling.top_p), "greater than 0 and at most 1 (1: off)");
  }
  if (sampling.top_k < 0) {
    return OutOfRange("top_k", std::to_string(sampling.top_k), "at least 1, or 0 to switch it off");
  }
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) {
    return OutOfRange("min_p", Number(sampling.min_p), "from 0 (off) to 1");
  }
  if (sampling.max_tokens < 1) {
    return OutOfRange("max_tokens", std::to_string(sampling.max_tokens), "at least 1");
  }
  if (sampling.logprobs && (*sampling.logprobs < 0 || *sampling.logprobs > kMaxLogprobs)) {
    return OutOfRange("logprobs", std::to_string(*sampling.logprobs),
                      fmt::format("from 0 to {}", kMaxLogprobs));
  }
  for (TokenId id : sampling.stop_token_ids) {
    if (id < 0 || id >= vocab_size) {
      return OutOfRange("stop_token_ids", fmt::format("[... {} ...]", id),
                        fmt::format("ids of the vocabulary, 0 to {}", vocab_size - 1));
    }
  }
  return ValidateLogitRules(sampling, vocab_size);
}

Status ValidatePrompt(std::span<const TokenId> prompt, int64_t vocab_size, int64_t max_model_len) {
  if (prompt.empty()) {
    return Error(ErrorCode::kInvalidArgument, "prompt has no tokens; it must have at least one");
  }
  const auto length = static_cast<int64_t>(prompt.size());
  if (length >= max_model_len) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("prompt has {} tokens; this model's maximum context length is {} tokens, prompt and "
                    "answer together, so a prompt may have at most {}",
                    length, max_model_len, max_model_len - 1));
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= vocab_size) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("prompt token {} is id {}; ids of the vocabulary are 0 to {}", i, prompt[i],
                               vocab_size - 1));
    }
  }
  return {};
}

}  // namespace millrace::engine
