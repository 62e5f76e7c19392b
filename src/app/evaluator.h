#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/page_pool.h"
#include "model/checkpoint.h"
#include "model/forward.h"

namespace millrace::app {

// Runs prompts one at a time through a forward pass of its own and keeps the logits of every position. One
// thread.
class Evaluator {
 public:
  // `checkpoint` and `pool` outlive the evaluator. A prompt is run in chunks of options.max_batch_tokens and
  // has at most `longest` tokens.
  static Result<std::unique_ptr<Evaluator>> Create(const model::Checkpoint& checkpoint, ThreadPool& pool,
                                                   const model::ForwardOptions& options, int64_t longest);

  // Logits [ids.size(), vocab_size] of a prompt of at least one token, alone.
  std::vector<float> Logits(std::span<const TokenId> ids, model::LayerTrace* trace = nullptr);

 private:
  Evaluator() = default;

  std::unique_ptr<model::Forward> forward_;
  std::unique_ptr<cache::PagePool> pages_;
  std::unique_ptr<model::SequenceState> state_;
};

}  // namespace millrace::app
