#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/forward.h"
#include "model/layer_plan.h"

namespace millrace::model {

// Where each token of a batch stands. Capacity is fixed at construction; Assign allocates nothing.
class BatchLayout {
 public:
  BatchLayout(const LayerPlan& plan, const ForwardOptions& options);

  struct Item {
    SequenceState* state = nullptr;
    int64_t first_token = 0;  // row of the item's first token in the batch
    int64_t n_tokens = 0;
    int64_t start = 0;          // position of the first token
    int64_t window_first = 0;   // row in window_rows of the oldest window row it brings along
    int64_t window_before = 0;  // how many it brings: min(start, window - 1)
  };
  struct Token {
    int32_t item = 0;
    TokenId id = 0;
    int64_t position = 0;
  };

  void Assign(std::span<const BatchItem> items);

  std::span<const Item> items() const { return items_; }
  std::span<const Token> tokens() const { return tokens_; }
  int64_t n_tokens() const { return static_cast<int64_t>(tokens_.size()); }
  const Item& ItemOf(const Token& token) const { return items_[static_cast<size_t>(token.item)]; }
  // Row in window_rows of batch token `t`.
  int64_t WindowRow(int64_t t) const;

 private:
  int64_t window_;
  std::vector<Item> items_;
  std::vector<Token> tokens_;
};

}  // namespace millrace::model
