#include "app/evaluator.h"

#include <algorithm>
#include <utility>

#include "model/engram_hash.h"
#include "model/sequence_state.h"

namespace millrace::app {

Result<std::unique_ptr<Evaluator>> Evaluator::Create(const model::Checkpoint& checkpoint, ThreadPool& pool,
                                                     const model::ForwardOptions& options, int64_t longest) {
  MILLRACE_ASSIGN_OR_RETURN(model::EngramHash hash,
                            model::EngramHash::ForCheckpoint(checkpoint.config(), checkpoint.dir()));
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<model::Forward> forward,
                            model::Forward::Create(checkpoint, std::move(hash), pool, options));
  const auto n_pages = static_cast<uint32_t>((longest + model::kPageTokens - 1) / model::kPageTokens);
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<cache::PagePool> pages,
                            cache::PagePool::Create(forward->page_layout().page_bytes, n_pages));
  std::unique_ptr<Evaluator> evaluator(new Evaluator);
  evaluator->state_ = std::make_unique<model::SequenceState>(forward->plan());
  std::vector<PageId> ids;
  MILLRACE_RETURN_IF_ERROR(pages->AllocateMany(n_pages, ids));
  for (PageId id : ids) evaluator->state_->pages.push_back(pages->Data(id));
  evaluator->forward_ = std::move(forward);
  evaluator->pages_ = std::move(pages);
  return evaluator;
}

std::vector<float> Evaluator::Logits(std::span<const TokenId> ids, model::LayerTrace* trace) {
  state_->Reset();
  const auto vocab = static_cast<size_t>(forward_->plan().config.vocab_size);
  const auto chunk = static_cast<size_t>(forward_->options().max_batch_tokens);
  std::vector<float> logits(ids.size() * vocab);
  for (size_t at = 0; at < ids.size(); at += chunk) {
    const size_t n = std::min(chunk, ids.size() - at);
    const model::BatchItem item{
        .state = state_.get(), .tokens = ids.subspan(at, n), .logits = model::LogitsWanted::kAll};
    forward_->Run(std::span(&item, 1), std::span(logits).subspan(at * vocab, n * vocab), trace);
  }
  return logits;
}

}  // namespace millrace::app
