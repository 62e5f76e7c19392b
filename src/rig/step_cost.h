#pragma once

#include <array>
#include <cstdint>

#include "model/catalogue.h"
#include "model/forward.h"
#include "model/layer_plan.h"

namespace millrace::rig {

// A number for each category of tensors.
struct ByCategory {
  std::array<uint64_t, model::kCategories> of{};

  uint64_t& operator[](model::Category category) { return of[static_cast<size_t>(category)]; }
  uint64_t operator[](model::Category category) const { return of[static_cast<size_t>(category)]; }
  uint64_t total() const;
};

// Bytes of weights that decoding one token reads, counted from the catalogue: all of the backbone, but of the
// experts those that a token chooses, of the embedding and the n-gram tables the rows that it looks up, and
// not the biases for images.
ByCategory DecodeBytes(const model::LayerPlan& plan);

// Multiply-adds of reading a prompt into an empty sequence.
struct PrefillWork {
  ByCategory weights;      // products with weight matrices
  uint64_t attention = 0;  // queries with rows and weights with rows, all heads
  uint64_t index = 0;      // index scores

  uint64_t total() const { return weights.total() + attention + index; }
};

// Counted from catalogue and plan for a prompt of `n_tokens` >= 1 of which the last token's logits are
// wanted; late layers work for the tokens that `late` names (model/forward.h). It does not depend on how the
// prompt is cut.
PrefillWork CountPrefill(const model::LayerPlan& plan, int64_t n_tokens, model::LateLayers late);

}  // namespace millrace::rig
