#include "engine/logit_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <variant>

#include "base/check.h"

namespace millrace::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

size_t MaskWords(size_t vocab_size) {
  return (vocab_size + 63) / 64;
}

bool HasBit(std::span<const uint64_t> words, size_t t) {
  return (words[t / 64] >> (t % 64) & 1) != 0;
}

void Forbid(std::span<const TokenId> ids, std::span<float> row) {
  for (const TokenId id : ids) row[static_cast<size_t>(id)] = -kInfinity;
}

// A finite logit stays finite, so that no rule makes a token certain or impossible.
float KeptFinite(float logit) {
  return std::clamp(logit, -kLargest, kLargest);
}

void AddBiases(std::span<const LogitBias> biases, std::span<float> row) {
  for (const LogitBias& bias : biases) {
    float& logit = row[static_cast<size_t>(bias.token)];
    if (logit != -kInfinity) logit = KeptFinite(logit + bias.bias);
  }
}

void ApplyPenalties(const SamplingParams& sampling, const TokenCounts& counts, std::span<float> row) {
  for (size_t t = 0; t < row.size(); ++t) {
    const auto token = static_cast<TokenId>(t);
    if (!counts.Occurs(token) || row[t] == -kInfinity) continue;
    const float penalty = sampling.repetition_penalty;
    float logit = row[t] > 0 ? row[t] / penalty : row[t] * penalty;
    if (const uint32_t generated = counts.Generated(token); generated > 0) {
      logit -= sampling.frequency_penalty * static_cast<float>(generated);
      logit -= sampling.presence_penalty;
    }
    row[t] = KeptFinite(logit);
  }
}

Error Unfollowable(std::string what) {
  return Error(ErrorCode::kInvalidArgument,
               "the request's constraint cannot be followed: " + std::move(what));
}

Status CheckIds(std::span<const TokenId> ids, int64_t vocab_size) {
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_size) {
      return Unfollowable(
          fmt::format("it names token {}; ids of the vocabulary are 0 to {}", id, vocab_size - 1));
    }
  }
  return {};
}

Status CheckSomeIds(std::span<const TokenId> ids, int64_t vocab_size) {
  if (ids.empty()) return Unfollowable("it allows no token; to end the sequence it must say so");
  return CheckIds(ids, vocab_size);
}

}  // namespace

Status CheckFollowable(const NextToken& next, int64_t vocab_size) {
  if (const auto* but = std::get_if<AnyTokenBut>(&next)) return CheckIds(but->ids, vocab_size);
  if (const auto* one = std::get_if<OneOfTokens>(&next)) return CheckSomeIds(one->ids, vocab_size);
  if (const auto* forced = std::get_if<ForcedTokens>(&next)) return CheckSomeIds(forced->ids, vocab_size);
  if (const auto* mask = std::get_if<OneOfMask>(&next)) {
    const size_t words = MaskWords(static_cast<size_t>(vocab_size));
    if (mask->words.size() != words) {
      return Unfollowable(fmt::format("its mask has {} words of 64 tokens; a vocabulary of {} tokens has {}",
                                      mask->words.size(), vocab_size, words));
    }
  }
  return {};
}

LogitRules::LogitRules(int64_t vocab_size)
    : row_(static_cast<size_t>(vocab_size)), words_(MaskWords(row_.size())) {}

uint64_t LogitRules::ScratchBytes(int64_t vocab_size) {
  return static_cast<uint64_t>(vocab_size) * sizeof(float) +
         MaskWords(static_cast<size_t>(vocab_size)) * sizeof(uint64_t);
}

bool LogitRules::Change(const SamplingParams& sampling, const DrawContext& context) {
  const auto* const but = std::get_if<AnyTokenBut>(&context.allowed);
  const bool free = std::holds_alternative<AnyToken>(context.allowed) || (but != nullptr && but->ids.empty());
  return !free || !context.withheld.empty() || !sampling.logit_bias.empty() || UsesPenalties(sampling);
}

Result<std::span<const float>> LogitRules::Apply(std::span<const float> logits,
                                                 const SamplingParams& sampling, const DrawContext& context) {
  std::ranges::copy(logits, row_.begin());
  Restrict(context.allowed);
  Forbid(context.withheld, row_);
  if (!AnyChoosable()) {
    std::ranges::copy(logits, row_.begin());
    Restrict(context.allowed);
    if (!AnyChoosable()) return Unfollowable("the model gives every token that it allows the logit -inf");
  }
  AddBiases(sampling.logit_bias, row_);
  if (UsesPenalties(sampling)) {
    MILLRACE_CHECK(context.counts != nullptr, "penalties without counts");
    ApplyPenalties(sampling, *context.counts, row_);
  }
  return std::span<const float>(row_);
}

void LogitRules::Restrict(const NextToken& allowed) {
  if (const auto* const but = std::get_if<AnyTokenBut>(&allowed)) return Forbid(but->ids, row_);
  std::span<const uint64_t> words;
  if (const auto* const mask = std::get_if<OneOfMask>(&allowed)) {
    words = mask->words;
  } else if (const auto* const one = std::get_if<OneOfTokens>(&allowed)) {
    std::ranges::fill(words_, 0u);
    for (const TokenId id : one->ids) words_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
    words = words_;
  } else {
    return;
  }
  for (size_t t = 0; t < row_.size(); ++t) {
    if (!HasBit(words, t)) row_[t] = -kInfinity;
  }
}

bool LogitRules::AnyChoosable() const {
  return std::ranges::any_of(row_, [](float logit) { return logit != -kInfinity; });
}

}  // namespace millrace::engine
