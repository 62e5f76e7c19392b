#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "model/forward.h"
#include "model/sequence_state.h"
#include "rig/huge_buffer.h"

namespace millrace::rig {

// One sequence of random tokens with pages of its own, to be run through a forward pass. One thread.
class BenchSequence {
 public:
  // `forward` outlives it. At most `capacity` tokens.
  BenchSequence(model::Forward& forward, int64_t capacity, uint64_t seed);

  // Forgets everything and reads a prompt of `n_tokens`, in batches; the logits of its last token are
  // computed.
  void Prefill(int64_t n_tokens);
  // Appends one token.
  void Decode();
  // Reads a batch in the middle of a prompt whose results are wanted from position `results_from` on, and
  // takes it back.
  void ReadInTheMiddle(int64_t n_tokens, int64_t results_from);
  // Makes the sequence `depth` tokens long by repeating what it holds: the work of what follows is that of
  // such a depth. Length and depth are multiples of DepthUnit().
  void RepeatTo(int64_t depth);
  static int64_t DepthUnit(const model::LayerPlan& plan);

  int64_t length() const { return state_.length(); }
  std::span<const float> logits() const { return logits_; }

 private:
  TokenId RandomToken();

  model::Forward& forward_;
  HugeBuffer memory_;
  model::SequenceState state_;
  std::mt19937_64 random_;
  std::vector<TokenId> tokens_;
  std::vector<float> logits_;  // of the last token
};

}  // namespace millrace::rig
