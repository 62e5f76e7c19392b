#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "model/forward.h"

// What tests of the forward pass share: a loaded checkpoint, and a sequence that owns its pages.
namespace millrace::model {

struct LoadedModel {
  // Fails the test (and returns an empty pointer) when the checkpoint cannot be loaded.
  static std::unique_ptr<LoadedModel> Open(const std::filesystem::path& dir, int n_threads,
                                           ForwardOptions options) {
    auto model = std::make_unique<LoadedModel>(n_threads);
    Result<Checkpoint> checkpoint = Checkpoint::Open(dir);
    if (!checkpoint.ok()) {
      ADD_FAILURE() << checkpoint.error().message();
      return nullptr;
    }
    model->checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint).value());
    Result<EngramHash> hash = EngramHash::ForCheckpoint(model->checkpoint->config(), dir);
    if (!hash.ok()) {
      ADD_FAILURE() << hash.error().message();
      return nullptr;
    }
    Result<std::unique_ptr<Forward>> forward =
        Forward::Create(*model->checkpoint, std::move(hash).value(), model->pool, options);
    if (!forward.ok()) {
      ADD_FAILURE() << forward.error().message();
      return nullptr;
    }
    model->forward = std::move(forward).value();
    return model;
  }

  explicit LoadedModel(int n_threads) : pool(n_threads) {}
  int64_t vocab_size() const { return checkpoint->config().vocab_size; }

  ThreadPool pool;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Forward> forward;
};

// A sequence with pages for `max_tokens`. Pages start filled with a pattern, so that reading what was never
// written shows.
class TestSequence {
 public:
  TestSequence(const Forward& forward, int64_t max_tokens) : state(forward.plan()) {
    const size_t bytes = forward.page_layout().page_bytes;
    for (int64_t t = 0; t < max_tokens; t += forward.page_layout().page_tokens) {
      auto* page = static_cast<std::byte*>(::operator new(bytes, std::align_val_t(64)));
      std::fill_n(page, bytes, std::byte{0xA5});
      state.pages.push_back(page);
    }
  }
  ~TestSequence() {
    for (std::byte* page : state.pages) ::operator delete(page, std::align_val_t(64));
  }
  TestSequence(const TestSequence&) = delete;
  TestSequence& operator=(const TestSequence&) = delete;

  SequenceState state;
};

// Logits [ids.size(), vocab] of one prompt run alone in chunks of `chunk` tokens (0: whole).
inline std::vector<float> RunPrompt(LoadedModel& model, std::span<const TokenId> ids, size_t chunk,
                                    LayerTrace* trace = nullptr) {
  TestSequence sequence(*model.forward, static_cast<int64_t>(ids.size()));
  const auto vocab = static_cast<size_t>(model.vocab_size());
  std::vector<float> logits(ids.size() * vocab);
  const size_t step = chunk == 0 ? ids.size() : chunk;
  for (size_t at = 0; at < ids.size(); at += step) {
    const size_t n = std::min(step, ids.size() - at);
    const BatchItem item{
        .state = &sequence.state, .tokens = ids.subspan(at, n), .logits = LogitsWanted::kAll};
    model.forward->Run(std::span(&item, 1), std::span(logits).subspan(at * vocab, n * vocab), trace);
  }
  return logits;
}

}  // namespace millrace::model
